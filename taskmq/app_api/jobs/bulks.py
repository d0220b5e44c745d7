"""Bulk operations, run by schedulers and servers."""

import asyncio
import uuid
from datetime import datetime
from typing import Final

from taskmq.api.jobs import BulkOperationList, BulkOperationView, RefusalView, RepeatedView
from taskmq.api.problems import PROBLEMS
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.durable.service import ServiceGroup
from taskmq.errors import RequestRefused
from taskmq.model.jobs.bulks import Bulk, BulkAction
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkOrder, BulkRunner, TenantBulks

_CODES: Final = {kind.__name__: code for kind, _, code, _ in PROBLEMS}
_POLL_SECONDS: Final = 0.05


class AppBulks(AppCalls):
    """Bulk operations by id. Schedulers and servers run them, independent of the caller."""

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
        """Start an action on all jobs that match a filter; `jobs.act` with `dry_run` counts them first.

        Args:
            everything: match all jobs, instead of a filter; the server and the command line require it.
            at, delay, priority: the new values, for `change`.
            mode: how to retry.
            again: also `retry` jobs that were already retried.
            rate: the maximum number of jobs per second.
            key: an idempotency key; repeating it returns the same operation.
            tasks: see `Bulk`.

        Raises:
            InvalidFilter: the filter is malformed.
            JobConflict: another operation has the key.
            InvalidOption: see `check_change`; or the rate is invalid.
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
        """Return a bulk operation with its progress.

        Raises:
            RequestRefused: `bulk_not_found`: no operation has the id.
        """
        return _require_bulk(bulk_id, await self._bulks.get(bulk_id))

    async def wait(self, bulk_id: str) -> BulkOperationView:
        """Run the operation in this process as well, until it is done or aborted, and return it."""
        async with ServiceGroup() as group:
            # Only this one: a restored store may have open operations that are no longer wanted.
            runner = BulkRunner(self._app, me=f"command {uuid.uuid4()}", only=bulk_id)
            await group.start(runner, "bulk operations")
            while (found := await self.get(bulk_id)).state == "running":
                await asyncio.sleep(_POLL_SECONDS)
        return found

    async def abort(self, bulk_id: str) -> BulkOperationView:
        """Stop an operation. Up to 20 jobs may still be in progress.

        Raises:
            RequestRefused: `bulk_not_found`: no operation has the id.
        """
        return _require_bulk(bulk_id, await self._bulks.abort(bulk_id))

    async def page(self, *, limit: int = 50, cursor: str | None = None) -> BulkOperationList:
        """Return a page of operations, newest first. They are kept for a month after they end."""
        page = await self._bulks.page(after=cursor or None, limit=limit)
        return BulkOperationList(render_all(_view, page.bulks), page.after)

    @property
    def _bulks(self) -> TenantBulks:
        return TenantBulks(self._app, self._caller.tenant, by=self._caller.actor())


def _require_bulk(bulk_id: str, bulk: Bulk | None) -> BulkOperationView:
    if bulk is None:
        raise RequestRefused(f"bulk operation {bulk_id[:64]!r} not found", status=404, code="bulk_not_found")
    return _view(bulk)


def _view(bulk: Bulk) -> BulkOperationView:
    return view_of(
        BulkOperationView,
        bulk,
        bulk_id=bulk.id,
        schedule_time=instant_text(bulk.at),
        by=bulk.user,
        refusals=[
            RefusalView(job_id=one.job_id, code=_CODES.get(one.error, "internal"), detail=one.detail)
            for one in bulk.refusals
        ],
        repeated=[RepeatedView(job_id=one.job_id, retried_as=one.retried_as) for one in bulk.repeated],
        began=instant_text(bulk.began),
        ended=instant_text(bulk.ended),
    )
