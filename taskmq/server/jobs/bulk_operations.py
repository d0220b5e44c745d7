"""`/bulk/operations`: the same done to many jobs, by schedulers and servers, whatever becomes of the caller."""

from typing import Any, Final

from litestar import Request, delete, get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.job_requests import BeginBulkBody
from taskmq.api.jobs import BulkOperationList, BulkOperationView
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission, allows_pattern, task_patterns
from taskmq.model.jobs.bulks import Bulk
from taskmq.operations.bulks import BulkRunner, TenantBulks
from taskmq.server.access import Caller
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, ServedApp, idempotency_key, priority_number
from taskmq.server.jobs.bulk import check_filter
from taskmq.server.settings import API

__all__ = ["BULK_OPERATIONS"]


@post(
    f"{API}/bulk/operations",
    status_code=202,
    permission=Permission.JOBS_BULK,
    operation_id="beginBulk",
    summary="Have the same done to many jobs",
    tags=["jobs"],
)
async def begin_bulk(
    data: JSONBody[BeginBulkBody], request: Request[Any, Any, Any], api: ApiGiven, caller: CallerGiven, state: State
) -> BulkOperationView:
    """Cancel, hold, release, retry or change all jobs that a filter finds, the newest first, in the background.

    Whatever server or scheduler dies, another one goes on, and each job is done to at most once. `POST /bulk` with
    `dry_run` says beforehand how many there are. The same again under the same `Idempotency-Key` is the same
    operation, and is answered with how far it is; other content under it is 409.
    """
    check_filter(data.filter, everything=data.everything)
    bulk = await api.bulks.begin(
        data.action,
        data.filter,
        everything=data.everything,
        at=data.schedule_time,
        delay=data.delay,
        priority=priority_number(data.priority),
        mode=data.mode,
        again=data.again,
        rate=data.rate,
        note=data.note,
        key=idempotency_key(request.headers),
        tasks=task_patterns(caller.identity, caller.tenant or ""),
    )
    runner: BulkRunner | None = state.get("bulks")
    if runner is not None:
        runner.wake()
    return bulk


@get(
    f"{API}/bulk/operations",
    permission=Permission.JOBS_READ,
    operation_id="listBulks",
    summary="List what was done to many jobs",
    tags=["jobs"],
)
async def list_bulks(api: ApiGiven, limit: Limit = 50, cursor: Cursor = None) -> BulkOperationList:
    """A tenant's bulk operations, the last one first; they are kept for a month after their end."""
    return await api.bulks.page(limit=limit, cursor=cursor)


@get(
    f"{API}/bulk/operations/{{bulk_id:str}}",
    permission=Permission.JOBS_READ,
    operation_id="getBulk",
    summary="Get a bulk operation",
    tags=["jobs"],
)
async def get_bulk(api: ApiGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """How far a bulk operation is."""
    return await api.bulks.get(bulk_id)


@delete(
    f"{API}/bulk/operations/{{bulk_id:str}}",
    status_code=200,
    permission=Permission.JOBS_BULK,
    operation_id="abortBulk",
    summary="Abort a bulk operation",
    tags=["jobs"],
)
async def abort_bulk(api: ApiGiven, app: ServedApp, caller: CallerGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """Have it be done to no more jobs; up to 20 may be under way. One that has ended stays as it is.

    One's own, or one for jobs of which one may call all tasks.
    """
    bulk = await TenantBulks(app, caller.tenant, by=caller.actor()).get(bulk_id)
    if bulk is not None and bulk.user_id != caller.identity.user_id and not _covers(caller, bulk):
        raise NotPermitted("it was begun for tasks that you may not call: ask who has begun it, or an admin")
    return await api.bulks.abort(bulk_id)


BULK_OPERATIONS: Final[tuple[Any, ...]] = (begin_bulk, list_bulks, get_bulk, abort_bulk)


def _covers(caller: Caller, bulk: Bulk) -> bool:
    """Whether the caller may call all tasks to whose jobs the bulk does something."""
    tenant = caller.tenant or ""
    return any(all(allows_pattern(caller.identity, tenant, one) for one in each) for each in bulk.tasks)
