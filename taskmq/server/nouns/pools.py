"""`/pools` and `/quotas`: whose turn it is in the queues of the store, and how much a tenant may submit."""

from typing import Annotated, Any, Final

import msgspec
from litestar import get, put
from litestar.handlers import delete
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaList, QuotaView
from taskmq.model.identity import Permission
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from taskmq.server.inputs import CallerGiven, ServedApp, rendered
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.submission import QuotaState

__all__ = ["POOL_HANDLERS"]

OfUser = Annotated[str | None, QueryParameter(max_length=200, description="The user whose quota it is.")]


@get(
    f"{API}/pools",
    permission=Permission.POOLS_READ,
    operation_id="listPools",
    summary="List pools and policies",
    tags=["pools"],
)
async def list_pools(app: ServedApp) -> PoolList:
    """The pools of tenants, and the policies of queues that were said instead of those of apps."""
    said = await app.pools.aread()
    return PoolList(
        version=said.version,
        items=[_view(pool) for _, pool in sorted(said.pools.items())],
        policies=[_policy_view(name, each) for name, each in sorted(said.queues.items())],
    )


@get(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_READ,
    operation_id="getPool",
    summary="Get a pool",
    tags=["pools"],
)
async def get_pool(app: ServedApp, name: FromPath[str]) -> PoolView:
    """One pool."""
    if (found := (await app.pools.aread()).pools.get(name)) is None:
        raise _no_pool(name)
    return _view(found)


@put(
    f"{API}/pools/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putPool",
    summary="Describe a pool",
    tags=["pools"],
)
async def put_pool(app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[PoolBody]) -> PoolView:
    """Say what the pool of a tenant is; schedulers follow within a second or two, also for what waits already."""
    # Refused before it is in the audit.
    pool = TenantPool(name=name, parent=data.parent, weight=data.weight, min=data.min, max=data.max).check_amounts()
    await caller.note_action(app, "pool.change", subject=name, after=msgspec.to_builtins(pool))
    return _view(await app.pools.aset(name, parent=pool.parent, weight=pool.weight, min=pool.min, max=pool.max))


@delete(
    f"{API}/pools/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removePool",
    summary="Take a pool away",
    tags=["pools"],
)
async def remove_pool(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Take a pool's description away; one that has parts stays."""
    if name not in (await app.pools.aread()).pools:
        raise _no_pool(name)
    await caller.note_action(app, "pool.remove", subject=name)
    await app.pools.aremove(name)
    return {"status": "removed"}


@put(
    f"{API}/queues/{{name:str}}/policy",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQueuePolicy",
    summary="Have a queue go by a policy",
    tags=["pools"],
)
async def put_policy(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[PolicyBody]
) -> PolicyView:
    """Have the jobs of the store take turns in the queue by this policy, whatever apps say."""
    await caller.note_action(app, "queue.policy", subject=name, after=msgspec.to_builtins(data))
    wanted = QueuePolicy(**msgspec.structs.asdict(data))
    await app.pools.aset_policy(name, wanted)
    return _policy_view(name, wanted)


@delete(
    f"{API}/queues/{{name:str}}/policy",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQueuePolicy",
    summary="Have a queue go by what apps say",
    tags=["pools"],
)
async def remove_policy(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Take what was said of the queue's policy away."""
    await caller.note_action(app, "queue.policy", subject=name)
    await app.pools.aset_policy(name, None)
    return {"status": "removed"}


@get(
    f"{API}/quotas",
    permission=Permission.POOLS_READ,
    operation_id="listQuotas",
    summary="List quotas",
    tags=["pools"],
)
async def list_quotas(app: ServedApp) -> QuotaList:
    """How much tenants and users may submit, and what of it is used up."""
    return QuotaList(rendered(_quota_view, await app.pools.aquotas()))


@put(
    f"{API}/quotas/{{name:str}}",
    permission=Permission.POOLS_CHANGE,
    operation_id="putQuota",
    summary="Say how much a tenant may submit",
    tags=["pools"],
)
async def put_quota(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[QuotaBody], user: OfUser = None
) -> QuotaView:
    """Say what the tenant, or the user of it, may submit, in place of what was said before; `*` is each of them."""
    limits = msgspec.structs.asdict(data)
    await caller.note_action(app, "quota.change", subject=_subject(name, user), after=limits)
    quota = await app.pools.aset_quota(name, user, **limits)
    states = [state for state in await app.pools.aquotas() if (state.quota.tenant, state.quota.user) == (name, user)]
    return _quota_view(states[0] if states else QuotaState(quota=quota, jobs=0, bytes=0))


@delete(
    f"{API}/quotas/{{name:str}}",
    status_code=200,
    permission=Permission.POOLS_CHANGE,
    operation_id="removeQuota",
    summary="Take a quota away",
    tags=["pools"],
)
async def remove_quota(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], user: OfUser = None
) -> dict[str, str]:
    """Take the quota of a tenant, or of a user of it, away."""
    if not any((state.quota.tenant, state.quota.user) == (name, user) for state in await app.pools.aquotas()):
        raise Problem(404, "quota_not_found", f"there is no quota of {_subject(name, user)!r}")
    await caller.note_action(app, "quota.remove", subject=_subject(name, user))
    await app.pools.aremove_quota(name, user)
    return {"status": "removed"}


POOL_HANDLERS: Final[tuple[Any, ...]] = (
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


def _no_pool(name: str) -> Problem:
    return Problem(404, "pool_not_found", f"there is no pool {name!r}")


def _subject(tenant: str, user: str | None) -> str:
    return tenant if user is None else f"{tenant}/{user}"


def _view(pool: TenantPool) -> PoolView:
    return PoolView(pool=pool.name, parent=pool.parent, weight=pool.weight, min=dict(pool.min), max=dict(pool.max))


def _policy_view(queue: str, policy: QueuePolicy) -> PolicyView:
    return PolicyView(
        queue=queue,
        policy=policy.policy,
        strict=policy.strict,
        preempt_after=policy.preempt_after,
        preempt_grace=policy.preempt_grace,
        preempt_most=policy.preempt_most,
    )


def _quota_view(state: QuotaState) -> QuotaView:
    return QuotaView(
        **{name: getattr(state.quota, name) for name in state.quota.__struct_fields__},
        jobs_today=state.jobs,
        bytes_today=state.bytes,
    )
