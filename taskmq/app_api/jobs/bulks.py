"""The same done to many jobs, by schedulers and servers."""

import asyncio
import uuid
from datetime import datetime
from typing import Final

from taskmq.api.jobs import BulkOperationList, BulkOperationView, RefusalView, RepeatedView
from taskmq.api.problems import PROBLEMS
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, rendered
from taskmq.durable.service import ServiceGroup
from taskmq.errors import RequestRefused
from taskmq.model.jobs.bulks import Bulk, BulkAction
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkOrder, BulkRunner, TenantBulks

__all__ = ["AppBulks"]

_CODES: Final = {kind.__name__: code for kind, _, code, _ in PROBLEMS}
_LOOK: Final = 0.05


class AppBulks(AppCalls):
    """Bulk operations, by their ids: schedulers and servers carry them out, whatever becomes of the caller."""

    async def begin(
        self,
        action: BulkAction,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        everything: bool = False,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        rate: float | None = None,
        note: str = "",
        key: str | None = None,
        tasks: tuple[tuple[str, ...], ...] = (),
    ) -> BulkOperationView:
        """Have the same be done to all jobs that a filter finds; `jobs.act` with `dry_run` says how many there are.

        Args:
            everything: all of them are meant, where there is no filter; the server and the command line see to that.
            at, delay, priority: what `change` makes different.
            mode: of a retry.
            again: `retry` is of jobs that were retried before, too.
            rate: to so many jobs a second.
            key: the same again under it is the same operation.
            tasks: see `Bulk`.

        Raises:
            InvalidFilter: the filter cannot be read.
            JobConflict: another operation was begun under the key.
            InvalidOption: see `check_change`; or a rate that is none.
        """
        del everything
        order = BulkOrder(
            action,
            filter,
            at=at,
            delay=delay,
            priority=priority,
            mode=mode,
            again=again,
            rate=rate,
            note=note,
            tasks=tasks,
        )
        return _view(await self._bulks.begin(order, key=key or ""))

    async def get(self, bulk_id: str) -> BulkOperationView:
        """Show the progress of a bulk operation.

        Raises:
            RequestRefused: `bulk_not_found`: there is none of that id.
        """
        return _existing(bulk_id, await self._bulks.get(bulk_id))

    async def wait(self, bulk_id: str) -> BulkOperationView:
        """Take part in the operation until it is done, or aborted: also where no scheduler and no server runs."""
        async with ServiceGroup() as group:
            # Only its own: in a store that was restored, operations may be open that no operator wants any more.
            runner = BulkRunner(self._app, me=f"command {uuid.uuid4()}", only=bulk_id)
            await group.start(runner, "carries out what is done to many jobs")
            while (found := await self.get(bulk_id)).state == "running":
                await asyncio.sleep(_LOOK)
        return found

    async def abort(self, bulk_id: str) -> BulkOperationView:
        """Have it be done to no more jobs; up to 20 may be under way.

        Raises:
            RequestRefused: `bulk_not_found`: there is none of that id.
        """
        return _existing(bulk_id, await self._bulks.abort(bulk_id))

    async def page(self, *, limit: int = 50, cursor: str | None = None) -> BulkOperationList:
        """A page of them, the last one first; they are kept for a month after their end."""
        page = await self._bulks.page(after=cursor or None, limit=limit)
        return BulkOperationList(rendered(_view, page.bulks), page.after)

    @property
    def _bulks(self) -> TenantBulks:
        return TenantBulks(self._app, self._caller.tenant, by=self._caller.actor())


def _existing(bulk_id: str, bulk: Bulk | None) -> BulkOperationView:
    if bulk is None:
        raise RequestRefused(f"there is no bulk operation {bulk_id[:64]!r}", status=404, code="bulk_not_found")
    return _view(bulk)


def _view(bulk: Bulk) -> BulkOperationView:
    return BulkOperationView(
        bulk_id=bulk.id,
        tenant=bulk.tenant,
        action=bulk.action,
        filter=bulk.filter,
        schedule_time=instant_text(bulk.at),
        priority=bulk.priority,
        rate=bulk.rate,
        note=bulk.note,
        by=bulk.user,
        state=bulk.state,
        matched=bulk.matched,
        done=bulk.done,
        refused=bulk.refused,
        refusals=[
            RefusalView(job_id=one.job_id, code=_CODES.get(one.error, "internal"), detail=one.detail)
            for one in bulk.refusals
        ],
        repeated=[RepeatedView(job_id=one.job_id, retried_as=one.retried_as) for one in bulk.repeated],
        began=instant_text(bulk.began),
        ended=instant_text(bulk.ended),
    )
