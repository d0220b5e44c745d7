"""`/logs`, and the log of one job."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from taskmq.api.history.logs import LineList
from taskmq.app_api.history.logs import line_list
from taskmq.app_api.views import bound_of, instant_text
from taskmq.model.history.logs import LEVELS, LogFilter, LogPage, StoredLine, level_name, read_level
from taskmq.model.identity import Permission
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, FromLevel, Limit, OfStep, OwnJobs, Since, Text, Until, number_of

LOG_HANDLERS: Final = Handlers("jobs")

_MOST_LINES: Final = 10_000
_PAGE: Final = 1_000

Attempt = Annotated[int | None, QueryParameter(description="Only lines of this attempt.", ge=1, le=2**31 - 1)]
OfTask = Annotated[str | None, QueryParameter(description="Only lines of this task's jobs.")]


@LOG_HANDLERS.handle("GET /jobs/{job_id}/logs", "getJobLogs", Permission.LOGS_READ, "Get a job's log")
async def get_job_logs(
    job_id: FromPath[str],
    api: ApiGiven,
    level: FromLevel = "debug",
    text: Text = "",
    attempt: Attempt = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> LineList:
    """Return log lines of a job, oldest first. To follow a job, repeat the request with `next`, even after an empty
    page.
    """
    number_of(cursor)
    return await api.logs.of_job(job_id, level=level, text=text, attempt=attempt, limit=limit, cursor=cursor)


@LOG_HANDLERS.handle(
    "GET /jobs/{job_id}/logs/text",
    "downloadJobLogs",
    Permission.LOGS_READ,
    "Download a job's log as text",
    media_type="text/plain",
)
async def download_job_logs(job_id: FromPath[str], jobs: OwnJobs, level: FromLevel = "debug") -> Stream:
    """Return up to 10,000 log lines of a job as a file."""
    which = LogFilter(level=LEVELS[level])
    # Read before the response begins, so that an unknown job is a 404.
    first = await jobs.logs(job_id, which, limit=_PAGE)
    headers = {"Content-Disposition": 'attachment; filename="job.log"'}
    return Stream(_stream_log(jobs, job_id, which, first), media_type="text/plain; charset=utf-8", headers=headers)


@LOG_HANDLERS.handle("GET /logs", "searchLogs", Permission.LOGS_READ, "Search logs", tag="logs", may_be_stale=True)
async def search_logs(
    jobs: OwnJobs,
    api: ApiGiven,
    level: FromLevel = "debug",
    text: Text = "",
    job_id: Annotated[str | None, QueryParameter(description="Only lines of this job.")] = None,
    run_id: Annotated[str | None, QueryParameter(description="Only lines of this run's jobs.")] = None,
    step: OfStep = "",
    task: OfTask = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> LineList:
    """Return log lines of jobs, newest first. A text search examines 20,000 lines per page."""
    which = LogFilter(
        level=LEVELS[level],
        text=text,
        job=None if job_id is None else (await jobs.get(job_id)).id,
        run=None if run_id is None else await api.runs.find_id(run_id),
        step=step,
        task=task,
        since=bound_of(since),
        until=bound_of(until),
    )
    return line_list(await jobs.search_logs(which, after=number_of(cursor), limit=limit))


@LOG_HANDLERS.handle(
    "GET /logs/query", "queryLogsCompat", Permission.LOGS_READ, "Search logs", is_compatible=True, may_be_stale=True
)
async def query_logs(
    jobs: OwnJobs,
    job_id: Annotated[str | None, QueryParameter(description="Only lines of this job.")] = None,
    level: Annotated[
        str | None, QueryParameter(description="Minimum level in upper or lower case, such as ERROR.")
    ] = None,
    text: Text = "",
    start_time: Since = None,
    end_time: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> LineList:
    """Return log lines by job, level, text and time, newest first."""
    return await _query(jobs, job_id, level, text, start_time, end_time, limit, cursor)


async def _stream_log(jobs: TenantJobs, job_id: str, which: LogFilter, page: LogPage) -> AsyncGenerator[str]:
    """Yield the text of a log, page by page."""
    left = _MOST_LINES
    while page.lines:
        yield "".join(map(_format_line, page.lines[:left]))
        left -= len(page.lines)
        if left <= 0:
            return
        page = await jobs.logs(job_id, which, after=page.after, limit=_PAGE)


async def _query(
    jobs: TenantJobs,
    job_id: str | None,
    level: str | None,
    text: str,
    since: Any,
    until: Any,
    limit: int,
    cursor: str | None,
) -> LineList:
    which = LogFilter(
        level=0 if level is None else read_level(level),
        text=text,
        job=None if job_id is None else (await jobs.get(job_id)).id,
        since=bound_of(since),
        until=bound_of(until),
    )
    return line_list(await jobs.search_logs(which, after=number_of(cursor), limit=limit))


def _format_line(line: StoredLine) -> str:
    return f"{instant_text(line.at)} {level_name(line.level).upper():<8} {line.logger}: {line.message}\n"
