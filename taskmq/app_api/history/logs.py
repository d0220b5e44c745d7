"""Log lines of job runs."""

from taskmq.api.history.logs import LineList, LineView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.model.history.logs import LogFilter, LogPage, StoredLine, level_name, read_level
from taskmq.operations.tenant_jobs import TenantJobs


class AppLogs(AppCalls):
    """Log lines of the jobs that the caller may see."""

    async def of_job(
        self,
        job_id: str,
        *,
        level: str = "debug",
        text: str = "",
        attempt: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> LineList:
        """Return log lines of a job, oldest first; continue with `cursor=page.next`, even after the last one.

        Raises:
            JobNotFound: no job has the id, or it belongs to another tenant.
            InvalidOption: the level is unknown.
        """
        which = LogFilter(level=read_level(level), text=text, attempt=attempt)
        jobs = TenantJobs(self._app, self._caller.tenant, by=self._caller.name)
        return line_list(await jobs.logs(job_id, which, after=int(cursor) if cursor else None, limit=limit))


def line_list(page: LogPage) -> LineList:
    """Build the API's view of a page of lines."""
    after = None if page.after is None else str(page.after)
    return LineList(items=render_all(_view, page.lines), next=after, is_bounded=page.is_bounded)


def _view(line: StoredLine) -> LineView:
    at, level = instant_text(line.at), level_name(line.level)
    return view_of(
        LineView,
        line,
        at=at,
        level=level,
        id=line.job,
        run_id=line.run,
        child=None if line.child < 0 else line.child,
        log_time=at,
        log_level=level.upper(),
        log_message=line.message,
    )
