"""Pools, policies of queues, and quotas."""

from collections.abc import Sequence

import msgspec

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import rendered
from taskmq.errors import RequestRefused
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from taskmq.model.units import did_you_mean
from taskmq.stored_jobs import QuotaState

__all__ = ["AppPools", "AppQuotas"]


class AppPools(AppCalls):
    """Pools, by the tenants whose jobs belong to them; and policies of queues."""

    async def list(self) -> PoolList:
        """The pools of tenants, and the policies of queues that were said instead of those of apps."""
        said = await self._app.pools.aread()
        return PoolList(
            version=said.version,
            items=[_view(pool) for _, pool in sorted(said.pools.items())],
            policies=[_policy_view(name, each) for name, each in sorted(said.queues.items())],
        )

    async def get(self, name: str) -> PoolView:
        """Return one pool by its name.

        Raises:
            RequestRefused: `pool_not_found`: there is none of that name.
        """
        return _view(await self._find(name))

    async def put(self, name: str, body: PoolBody) -> PoolView:
        """Say what the pool of a tenant is; schedulers follow within a second or two, also for what waits already.

        Raises:
            InvalidOption: an amount or a parent that cannot be.
        """
        # Refused before it is in the audit.
        pool = TenantPool(
            name=name, parent=body.parent, weight=body.weight, min=body.min, max=body.max
        ).check_amounts()
        await self._caller.note_action(self._app, "pool.change", subject=name, after=msgspec.to_builtins(pool))
        return _view(
            await self._app.pools.aset(name, parent=pool.parent, weight=pool.weight, min=pool.min, max=pool.max)
        )

    async def remove(self, name: str) -> None:
        """Take a pool's description away; one that has parts stays.

        Raises:
            RequestRefused: `pool_not_found`: there is none of that name.
            InvalidOption: it has parts.
        """
        await self._find(name)
        await self._caller.note_action(self._app, "pool.remove", subject=name)
        await self._app.pools.aremove(name)

    async def put_policy(self, queue: str, body: PolicyBody) -> PolicyView:
        """Have the jobs of the store take turns in the queue by this policy, whatever apps say."""
        await self._caller.note_action(self._app, "queue.policy", subject=queue, after=msgspec.to_builtins(body))
        wanted = QueuePolicy(**msgspec.structs.asdict(body))
        await self._app.pools.aset_policy(queue, wanted)
        return _policy_view(queue, wanted)

    async def remove_policy(self, queue: str) -> None:
        """Take what was said of the queue's policy away: it goes by what apps say."""
        await self._caller.note_action(self._app, "queue.policy", subject=queue)
        await self._app.pools.aset_policy(queue, None)

    async def _find(self, name: str) -> TenantPool:
        known = (await self._app.pools.aread()).pools
        if name not in known:
            said = f"there is no pool {name!r}: {did_you_mean(name, sorted(known))}"
            raise RequestRefused(said, status=404, code="pool_not_found")
        return known[name]


class AppQuotas(AppCalls):
    """Limits on the submissions of tenants and their users; `*` stands for each user."""

    async def list(self) -> Sequence[QuotaView]:
        """List the quotas, and the part of each that was used since midnight UTC."""
        return rendered(_quota_view, await self._app.pools.aquotas())

    async def put(self, tenant: str, body: QuotaBody, *, user: str | None = None) -> QuotaView:
        """Say what the tenant, or the user of it, may submit, in place of what was said before.

        Raises:
            InvalidOption: a limit that cannot be.
        """
        limits = msgspec.structs.asdict(body)
        await self._caller.note_action(self._app, "quota.change", subject=_subject(tenant, user), after=limits)
        quota = await self._app.pools.aset_quota(tenant, user, **limits)
        state = await self._find(tenant, user)
        return _quota_view(state or QuotaState(quota=quota, jobs=0, bytes=0))

    async def remove(self, tenant: str, *, user: str | None = None) -> None:
        """Take the quota of a tenant, or of a user of it, away.

        Raises:
            RequestRefused: `quota_not_found`: there is none.
        """
        subject = _subject(tenant, user)
        if await self._find(tenant, user) is None:
            raise RequestRefused(f"there is no quota of {subject!r}", status=404, code="quota_not_found")
        await self._caller.note_action(self._app, "quota.remove", subject=subject)
        await self._app.pools.aremove_quota(tenant, user)

    async def _find(self, tenant: str, user: str | None) -> QuotaState | None:
        states = await self._app.pools.aquotas()
        return next((each for each in states if (each.quota.tenant, each.quota.user) == (tenant, user)), None)


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
