"""`/pools` and `/quotas`: shares of queues, and limits of submissions."""

from typing import Annotated, Any, Final

from litestar import get, put
from litestar.handlers import delete
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaList, QuotaView
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven
from taskmq.server.settings import API

OfUser = Annotated[str | None, QueryParameter(max_length=200, description="The user with the quota.")]


@get(
    f"{API}/pools",
    permission=Permission.POOLS_READ,
    operation_id="listPools",
    summary="List pools and policies",
    tags=["pools"],
)
async def list_pools(api: ApiGiven) -> PoolList:
    """Return the tenants' pools, and the queue policies that override the apps' settings."""
    return await api.pools.list()


@get(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_READ,
    operation_id="getPool",
    summary="Get a pool",
    tags=["pools"],
)
async def get_pool(api: ApiGiven, name: FromPath[str]) -> PoolView:
    """Return a pool."""
    return await api.pools.get(name)


@put(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putPool",
    summary="Create or replace a pool",
    tags=["pools"],
)
async def put_pool(api: ApiGiven, name: FromPath[str], data: JSONBody[PoolBody]) -> PoolView:
    """Create or replace the pool of a tenant. Schedulers apply it within a second or two, also to waiting jobs."""
    return await api.pools.put(name, data)


@delete(
    f"{API}/pools/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removePool",
    summary="Remove a pool",
    tags=["pools"],
)
async def remove_pool(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a pool. A pool with child pools cannot be removed."""
    await api.pools.remove(name)
    return {"status": "removed"}


@put(
    f"{API}/queues/{{name:str}}/policy",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQueuePolicy",
    summary="Set a queue's policy",
    tags=["pools"],
)
async def put_policy(api: ApiGiven, name: FromPath[str], data: JSONBody[PolicyBody]) -> PolicyView:
    """Set the scheduling policy of a queue's stored jobs, overriding the apps' setting."""
    return await api.pools.put_policy(name, data)


@delete(
    f"{API}/queues/{{name:str}}/policy",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQueuePolicy",
    summary="Remove a queue's policy",
    tags=["pools"],
)
async def remove_policy(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove the policy override of a queue."""
    await api.pools.remove_policy(name)
    return {"status": "removed"}


@get(
    f"{API}/quotas",
    permission=Permission.POOLS_READ,
    operation_id="listQuotas",
    summary="List quotas",
    tags=["pools"],
)
async def list_quotas(api: ApiGiven) -> QuotaList:
    """Return the quotas of tenants and users, with their usage."""
    return QuotaList(list(await api.quotas.list()))


@put(
    f"{API}/quotas/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQuota",
    summary="Set a quota",
    tags=["pools"],
)
async def put_quota(api: ApiGiven, name: FromPath[str], data: JSONBody[QuotaBody], user: OfUser = None) -> QuotaView:
    """Set the quota of a tenant or one of its users, replacing the current one; `*` applies to each of them."""
    return await api.quotas.put(name, data, user=user)


@delete(
    f"{API}/quotas/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQuota",
    summary="Remove a quota",
    tags=["pools"],
)
async def remove_quota(api: ApiGiven, name: FromPath[str], user: OfUser = None) -> dict[str, str]:
    """Remove the quota of a tenant or one of its users."""
    await api.quotas.remove(name, user=user)
    return {"status": "removed"}


POOLS: Final[tuple[Any, ...]] = (
    list_pools,
    get_pool,
    put_pool,
    remove_pool,
    put_policy,
    remove_policy,
    list_quotas,
    put_quota,
    remove_quota,
)
