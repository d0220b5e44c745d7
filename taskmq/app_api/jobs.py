"""Jobs of the store."""

from datetime import datetime
from typing import Final

from taskmq.api.jobs import BulkView, RefusalView
from taskmq.api.problems import problem_of
from taskmq.app_api.caller import AppCalls
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import TaskMQError
from taskmq.model.jobs.bulks import BulkAction, wanted
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkChange, act_on_page, check_change
from taskmq.operations.tenant_jobs import TenantJobs

__all__ = ["AppJobs"]

_CAP: Final = 100_000
_MOST_REFUSALS: Final = 100


class AppJobs(AppCalls):
    """The jobs that the caller may see, and what is done to them."""

    async def act(
        self,
        action: BulkAction,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        everything: bool = False,
        dry_run: bool = False,
        limit: int = 200,
        cursor: str | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
    ) -> BulkView:
        """Do the same to many jobs that a filter finds, up to `limit` of them; go on with `next` as the `cursor`.

        Args:
            everything: all of them are meant, where there is no filter; whoever takes the filter from a person has
                seen to that.
            dry_run: only say how many there are, up to 100,000.
            at, delay, priority: what `change` makes different.
            mode: of a retry.
            again: `retry` is of jobs that were retried before, too.

        Raises:
            InvalidFilter: the filter cannot be read.
            InvalidOption: see `check_change`.
        """
        del everything
        change = BulkChange(at, delay, priority, mode, again)
        check_change(action, change)
        which = await self._jobs.filter(filter)
        if dry_run:
            count = await self._jobs.count(wanted(which, action, again=again), cap=_CAP)
            return BulkView(dry_run=True, matched=min(count, _CAP), done=0, refused=0, refusals=[], next=None)
        said = {"filter": filter, "cursor": cursor}
        await self._caller.note_action(self._app, f"jobs.{action}", subject="", after=said, note=note)
        page = await act_on_page(
            # The request is in the audit; each of its jobs has it in its history.
            TenantJobs(self._app, self._caller.tenant, by=self._caller.name, allows=self._caller.allows),
            action,
            which,
            change=change,
            after=cursor,
            limit=limit,
            note=note,
        )
        return BulkView(
            dry_run=False,
            matched=len(page.done) + len(page.refused),
            done=len(page.done),
            refused=len(page.refused),
            refusals=[self._refusal(*refusal) for refusal in page.refused[:_MOST_REFUSALS]],
            next=page.after,
        )

    def _refusal(self, record: JobRecord, error: TaskMQError) -> RefusalView:
        told = problem_of(error)
        return RefusalView(job_id=self._jobs.name_of(record), code=told.code, detail=told.detail)

    @property
    def _jobs(self) -> TenantJobs:
        return TenantJobs(self._app, self._caller.tenant, by=self._caller.actor(), allows=self._caller.allows)
