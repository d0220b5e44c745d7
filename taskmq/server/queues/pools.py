"""`/pools` and `/quotas`: whose turn it is in the queues of the store, and how much a tenant may submit."""

from typing import Annotated, Any, Final

from litestar import get, put
from litestar.handlers import delete
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaList, QuotaView
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven
from taskmq.server.settings import API

__all__ = ["POOLS"]

OfUser = Annotated[str | None, QueryParameter(max_length=200, description="The user whose quota it is.")]


@get(
    f"{API}/pools",
    permission=Permission.POOLS_READ,
    operation_id="listPools",
    summary="List pools and policies",
    tags=["pools"],
)
async def list_pools(api: ApiGiven) -> PoolList:
    """The pools of tenants, and the policies of queues that were said instead of those of apps."""
    return await api.pools.list()


@get(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_READ,
    operation_id="getPool",
    summary="Get a pool",
    tags=["pools"],
)
async def get_pool(api: ApiGiven, name: FromPath[str]) -> PoolView:
    """One pool."""
    return await api.pools.get(name)


@put(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putPool",
    summary="Describe a pool",
    tags=["pools"],
)
async def put_pool(api: ApiGiven, name: FromPath[str], data: JSONBody[PoolBody]) -> PoolView:
    """Say what the pool of a tenant is; schedulers follow within a second or two, also for what waits already."""
    return await api.pools.put(name, data)


@delete(
    f"{API}/pools/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removePool",
    summary="Take a pool away",
    tags=["pools"],
)
async def remove_pool(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Take a pool's description away; one that has parts stays."""
    await api.pools.remove(name)
    return {"status": "removed"}


@put(
    f"{API}/queues/{{name:str}}/policy",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQueuePolicy",
    summary="Have a queue go by a policy",
    tags=["pools"],
)
async def put_policy(api: ApiGiven, name: FromPath[str], data: JSONBody[PolicyBody]) -> PolicyView:
    """Have the jobs of the store take turns in the queue by this policy, whatever apps say."""
    return await api.pools.put_policy(name, data)


@delete(
    f"{API}/queues/{{name:str}}/policy",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQueuePolicy",
    summary="Have a queue go by what apps say",
    tags=["pools"],
)
async def remove_policy(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Take what was said of the queue's policy away."""
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
    """How much tenants and users may submit, and what of it is used up."""
    return QuotaList(list(await api.quotas.list()))


@put(
    f"{API}/quotas/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQuota",
    summary="Say how much a tenant may submit",
    tags=["pools"],
)
async def put_quota(api: ApiGiven, name: FromPath[str], data: JSONBody[QuotaBody], user: OfUser = None) -> QuotaView:
    """Say what the tenant, or the user of it, may submit, in place of what was said before; `*` is each of them."""
    return await api.quotas.put(name, data, user=user)


@delete(
    f"{API}/quotas/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQuota",
    summary="Take a quota away",
    tags=["pools"],
)
async def remove_quota(api: ApiGiven, name: FromPath[str], user: OfUser = None) -> dict[str, str]:
    """Take the quota of a tenant, or of a user of it, away."""
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
