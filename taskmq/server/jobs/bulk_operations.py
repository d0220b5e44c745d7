"""`/bulk/operations`: one action on many jobs, run in the background by schedulers and servers."""

from typing import Any, Final

from litestar import Request
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.job_requests import BeginBulkBody
from taskmq.api.jobs import BulkOperationList, BulkOperationView
from taskmq.app_api.jobs.orders import priority_number
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission, allows_pattern, task_patterns
from taskmq.model.jobs.bulks import Bulk
from taskmq.operations.bulks import BulkRunner, TenantBulks
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, ServedApp, idempotency_key
from taskmq.server.jobs.bulk import check_filter

BULK_OPERATIONS: Final = Handlers("jobs")


@BULK_OPERATIONS.handle(
    "POST /bulk/operations", "beginBulk", Permission.JOBS_BULK, "Start a bulk operation", status_code=202
)
async def begin_bulk(
    data: JSONBody[BeginBulkBody], request: Request[Any, Any, Any], api: ApiGiven, caller: CallerGiven, state: State
) -> BulkOperationView:
    """Cancels, holds, releases, retries or changes all jobs that match a filter, newest first, in the background.

    If a server or scheduler dies, another one continues, and each job is changed at most once. `POST /bulk` with
    `dry_run` counts the jobs first. Repeating the request with the same `Idempotency-Key` returns the existing
    operation and its progress; with other content it is a 409.
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


@BULK_OPERATIONS.handle("GET /bulk/operations", "listBulks", Permission.JOBS_READ, "List bulk operations")
async def list_bulks(api: ApiGiven, limit: Limit = 50, cursor: Cursor = None) -> BulkOperationList:
    """Return a tenant's bulk operations, newest first. They are kept for a month after they end."""
    return await api.bulks.page(limit=limit, cursor=cursor)


@BULK_OPERATIONS.handle("GET /bulk/operations/{bulk_id}", "getBulk", Permission.JOBS_READ, "Get a bulk operation")
async def get_bulk(api: ApiGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """Return a bulk operation with its progress."""
    return await api.bulks.get(bulk_id)


@BULK_OPERATIONS.handle(
    "DELETE /bulk/operations/{bulk_id}",
    "abortBulk",
    Permission.JOBS_BULK,
    "Abort a bulk operation",
    repeats=True,
)
async def abort_bulk(api: ApiGiven, app: ServedApp, caller: CallerGiven, bulk_id: FromPath[str]) -> BulkOperationView:
    """Stop a bulk operation. Up to 20 jobs may still be in progress. An ended operation stays unchanged.

    Callers can stop their own operations, and those whose tasks they may all call.
    """
    bulk = await TenantBulks(app, caller.tenant, by=caller.actor()).get(bulk_id)
    if bulk is not None and bulk.user_id != caller.identity.user_id and not _covers(caller, bulk):
        raise NotPermitted("it covers tasks that you may not call: ask the user who started it, or an admin")
    return await api.bulks.abort(bulk_id)


def _covers(caller: Caller, bulk: Bulk) -> bool:
    """Whether the caller may call all tasks of the operation's jobs."""
    tenant = caller.tenant or ""
    return any(all(allows_pattern(caller.identity, tenant, one) for one in each) for each in bulk.tasks)
