"""`/pools` and `/quotas`: shares of queues, and limits of submissions."""

from typing import Annotated, Final

from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.pools import (
    BacklogList,
    PolicyBody,
    PolicyView,
    PoolBody,
    PoolList,
    PoolView,
    QuotaBody,
    QuotaList,
    QuotaView,
)
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Limit

POOLS: Final = Handlers("pools")

OfUser = Annotated[str | None, QueryParameter(max_length=200, description="The user with the quota.")]


@POOLS.handle("GET /pools", "listPools", Permission.POOLS_READ, "List pools and policies")
async def list_pools(api: ApiGiven) -> PoolList:
    """Return the tenants' pools, and the queue policies that override the apps' settings."""
    return await api.pools.list()


@POOLS.handle("GET /backlogs", "listBacklogs", Permission.JOBS_READ, "List tenants whose jobs wait")
async def list_backlogs(api: ApiGiven, limit: Limit = 20) -> BacklogList:
    """Return the tenants with due stored jobs that are not dispatched yet, and why the oldest job of each waits."""
    return BacklogList(list(await api.pools.waiting(limit=limit)))


@POOLS.handle("GET /pools/{name}", "getPool", Permission.POOLS_READ, "Get a pool")
async def get_pool(api: ApiGiven, name: FromPath[str]) -> PoolView:
    """Return a pool."""
    return await api.pools.get(name)


@POOLS.handle("PUT /pools/{name}", "putPool", Permission.POOLS_CHANGE, "Create or replace a pool", repeats=True)
async def put_pool(api: ApiGiven, name: FromPath[str], data: JSONBody[PoolBody]) -> PoolView:
    """Create or replace the pool of a tenant. Schedulers apply it within a second or two, also to waiting jobs."""
    return await api.pools.put(name, data)


@POOLS.handle("DELETE /pools/{name}", "removePool", Permission.POOLS_CHANGE, "Remove a pool")
async def remove_pool(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a pool. A pool with child pools cannot be removed."""
    await api.pools.remove(name)
    return {"status": "removed"}


@POOLS.handle(
    "PUT /queues/{name}/policy", "putQueuePolicy", Permission.POOLS_CHANGE, "Set a queue's policy", repeats=True
)
async def put_policy(api: ApiGiven, name: FromPath[str], data: JSONBody[PolicyBody]) -> PolicyView:
    """Set the scheduling policy of a queue's stored jobs, overriding the apps' setting."""
    return await api.pools.put_policy(name, data)


@POOLS.handle(
    "DELETE /queues/{name}/policy",
    "removeQueuePolicy",
    Permission.POOLS_CHANGE,
    "Remove a queue's policy",
    repeats=True,
)
async def remove_policy(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove the policy override of a queue."""
    await api.pools.remove_policy(name)
    return {"status": "removed"}


@POOLS.handle("GET /quotas", "listQuotas", Permission.POOLS_READ, "List quotas")
async def list_quotas(api: ApiGiven) -> QuotaList:
    """Return the quotas of tenants and users, with their usage."""
    return QuotaList(list(await api.quotas.list()))


@POOLS.handle("PUT /quotas/{name}", "putQuota", Permission.POOLS_CHANGE, "Set a quota", repeats=True)
async def put_quota(api: ApiGiven, name: FromPath[str], data: JSONBody[QuotaBody], user: OfUser = None) -> QuotaView:
    """Set the quota of a tenant or one of its users, replacing the current one; `*` applies to each of them."""
    return await api.quotas.put(name, data, user=user)


@POOLS.handle("DELETE /quotas/{name}", "removeQuota", Permission.POOLS_CHANGE, "Remove a quota")
async def remove_quota(api: ApiGiven, name: FromPath[str], user: OfUser = None) -> dict[str, str]:
    """Remove the quota of a tenant or one of its users."""
    await api.quotas.remove(name, user=user)
    return {"status": "removed"}
