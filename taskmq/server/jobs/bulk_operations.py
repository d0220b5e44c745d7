"""`/bulk/operations`: the same done to many jobs, by schedulers and servers, whatever becomes of the caller."""

from typing import Any, Final

from litestar import Request, delete, get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.job_requests import BeginBulkBody
from taskmq.api.jobs import BulkOperationList, BulkOperationView, RefusalView, RepeatedView
from taskmq.api.problems import PROBLEMS
from taskmq.app import TaskMQ
from taskmq.app_api.views import instant_text, rendered
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission, allows_pattern, task_patterns
from taskmq.model.jobs.bulks import Bulk
from taskmq.operations.bulks import BulkOrder, BulkRunner, TenantBulks
from taskmq.server.access import Caller
from taskmq.server.inputs import CallerGiven, Cursor, Limit, ServedApp, idempotency_key, priority_number
from taskmq.server.jobs.bulk import check_filter
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["BULK_OPERATIONS"]

_CODES: Final = {kind.__name__: code for kind, _, code, _ in PROBLEMS}


@post(
    f"{API}/bulk/operations",
    status_code=202,
    permission=Permission.JOBS_BULK,
    operation_id="beginBulk",
    summary="Have the same done to many jobs",
    tags=["jobs"],
)
async def begin_bulk(
    data: JSONBody[BeginBulkBody], request: Request[Any, Any, Any], app: ServedApp, caller: CallerGiven, state: State
) -> BulkOperationView:
    """Cancel, hold, release, retry or change all jobs that a filter finds, the newest first, in the background.

    Whatever server or scheduler dies, another one goes on, and each job is done to at most once. `POST /bulk` with
    `dry_run` says beforehand how many there are. The same again under the same `Idempotency-Key` is the same
    operation, and is answered with how far it is; other content under it is 409.
    """
    check_filter(data.filter, everything=data.everything)
    order = BulkOrder(
        data.action,
        data.filter,
        at=data.schedule_time,
        delay=data.delay,
        priority=priority_number(data.priority),
        mode=data.mode,
        again=data.again,
        rate=data.rate,
        note=data.note,
        tasks=task_patterns(caller.identity, caller.tenant or ""),
    )
    bulk = await _own(app, caller).begin(order, key=idempotency_key(request.headers) or "")
    runner: BulkRunner | None = state.get("bulks")
    if runner is not None:
        runner.wake()
    return _view(bulk)


@get(
    f"{API}/bulk/operations",
    permission=Permission.JOBS_READ,
    operation_id="listBulks",
    summary="List what was done to many jobs",
    tags=["jobs"],
)
async def list_bulks(
    app: ServedApp, caller: CallerGiven, limit: Limit = 50, cursor: Cursor = None
) -> BulkOperationList:
    """A tenant's bulk operations, the last one first; they are kept for a month after their end."""
    page = await _own(app, caller).page(after=cursor or None, limit=limit)
    return BulkOperationList(rendered(_view, page.bulks), page.after)


@get(
    f"{API}/bulk/operations/{{bulk_id:str}}",
    permission=Permission.JOBS_READ,
    operation_id="getBulk",
    summary="Get a bulk operation",
    tags=["jobs"],
)
async def get_bulk(app: ServedApp, caller: CallerGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """How far a bulk operation is."""
    return _found(bulk_id, await _own(app, caller).get(bulk_id))


@delete(
    f"{API}/bulk/operations/{{bulk_id:str}}",
    status_code=200,
    permission=Permission.JOBS_BULK,
    operation_id="abortBulk",
    summary="Abort a bulk operation",
    tags=["jobs"],
)
async def abort_bulk(app: ServedApp, caller: CallerGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """Have it be done to no more jobs; up to 20 may be under way. One that has ended stays as it is.

    One's own, or one for jobs of which one may call all tasks.
    """
    own = _own(app, caller)
    bulk = await own.get(bulk_id)
    if bulk is not None and bulk.user_id != caller.identity.user_id and not _covers(caller, bulk):
        raise NotPermitted("it was begun for tasks that you may not call: ask who has begun it, or an admin")
    return _found(bulk_id, await own.abort(bulk_id))


BULK_OPERATIONS: Final[tuple[Any, ...]] = (begin_bulk, list_bulks, get_bulk, abort_bulk)


def _own(app: TaskMQ, caller: Caller) -> TenantBulks:
    return TenantBulks(app, caller.tenant, by=caller.actor())


def _covers(caller: Caller, bulk: Bulk) -> bool:
    """Whether the caller may call all tasks to whose jobs the bulk does something."""
    tenant = caller.tenant or ""
    return any(all(allows_pattern(caller.identity, tenant, one) for one in each) for each in bulk.tasks)


def _found(bulk_id: str, bulk: Bulk | None) -> BulkOperationView:
    if bulk is None:
        raise Problem(404, "bulk_not_found", f"there is no bulk operation {bulk_id[:64]!r}")
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
