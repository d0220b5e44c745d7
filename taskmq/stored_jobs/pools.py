"""`app.pools`: shares of tenants in the store's queues, and quotas for what they may submit."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from taskmq.client.sessions import Sessions, blocking
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import QueuePolicy, Sharing, TenantPool
from taskmq.model.jobs.quotas import OnLimit, Quota, Quotas, usage_name
from taskmq.model.topology import Policy, check_queue_name
from taskmq.model.units import DAY_MS, did_you_mean


class QuotaState(msgspec.Struct, frozen=True, kw_only=True):
    """A quota and its usage.

    Attributes:
        jobs, bytes: submitted since midnight UTC; for a default quota (`*`) by jobs without a tenant.
    """

    quota: Quota
    jobs: int
    bytes: int


class Pools:
    """Pools of tenants, policies of queues, and quotas, set by operators for all users of the store.

    Schedulers and submitters apply a change within two seconds, including to jobs that already wait. Methods that
    start with `a` are for coroutines. Every method may raise `StoreUnavailable`, and `UnsupportedFeature` if the app
    has no store.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def aread(self) -> Sharing:
        """Return all pools, and the queue policies that override those of apps."""
        return await self._sessions.store().sharing()

    read = blocking(aread)

    async def aset(
        self,
        name: str,
        *,
        parent: str | msgspec.UnsetType | None = msgspec.UNSET,
        weight: float | msgspec.UnsetType = msgspec.UNSET,
        min: Mapping[str, float] | msgspec.UnsetType = msgspec.UNSET,  # noqa: A002 - as the pool's own fields
        max: Mapping[str, float] | msgspec.UnsetType = msgspec.UNSET,  # noqa: A002 - as the pool's own fields
    ) -> TenantPool:
        """Create a pool, or change the given fields of an existing one. Returns the pool.

        Args:
            name: tenant whose jobs belong to it; `*`: every tenant without a pool.
            parent: the pool that contains it; None: the queue itself.
            weight: weight among its siblings, in `weighted` queues.
            min, max: jobs in flight, such as `{"slots": 4}`: the guaranteed number, and the cap above which its jobs
                wait.

        Raises:
            InvalidOption: a value is invalid.
        """
        given = {"parent": parent, "weight": weight, "min": min, "max": max}
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not msgspec.UNSET}

        def change(before: Sharing) -> Sharing:
            pool = replace(before.pools.get(name) or TenantPool(name=name), **changes).check_amounts()
            return replace(before, pools={**before.pools, name: pool})

        return (await self._change(change)).pools[name]

    set = blocking(aset)

    async def aremove(self, name: str) -> None:
        """Remove a pool without children.

        Raises:
            InvalidOption: there is no such pool, or it contains another pool.
        """

        def change(before: Sharing) -> Sharing:
            if name not in before.pools:
                raise InvalidOption(f"there is no pool {name!r}: {did_you_mean(name, sorted(before.pools))}")
            return replace(before, pools={other: pool for other, pool in before.pools.items() if other != name})

        await self._change(change)

    remove = blocking(aremove)

    async def aset_policy(self, queue: str, policy: "QueuePolicy | Policy | None") -> None:
        """Override the policy of a queue for all apps; None removes the override.

        Raises:
            InvalidOption: the queue's name or the policy is invalid.
        """
        check_queue_name(queue)
        override = QueuePolicy(policy=policy) if isinstance(policy, str) else policy

        def change(before: Sharing) -> Sharing:
            queues = {name: each for name, each in before.queues.items() if name != queue}
            return replace(before, queues=queues if override is None else {**queues, queue: override})

        await self._change(change)

    set_policy = blocking(aset_policy)

    async def _change(self, change: Callable[[Sharing], Sharing]) -> Sharing:
        store = self._sessions.store()
        while True:
            before = await store.sharing()
            after = replace(change(before), version=before.version + 1)
            if await store.share(after):
                return after

    async def aquotas(self) -> list[QuotaState]:
        """Return all quotas, sorted by tenant and user, with today's usage."""
        store = self._sessions.store()
        stored = (await store.quotas()).quotas
        today = await store.now_ms() // DAY_MS
        used = {name: each for name, each in (await store.quota_usage(list(stored))).items() if each.day == today}
        return [
            QuotaState(
                quota=quota,
                jobs=used[name].jobs if name in used else 0,
                bytes=used[name].bytes if name in used else 0,
            )
            for name, quota in sorted(stored.items(), key=lambda each: (each[1].tenant, each[1].user or ""))
        ]

    quotas = blocking(aquotas)

    async def aset_quota(
        self,
        tenant: str,
        user: str | None = None,
        *,
        queued: int | None = None,
        a_day: int | None = None,
        bytes: int | None = None,  # noqa: A002 - as the quota's own field
        rate: float | None = None,
        burst: int = 1,
        running: int | None = None,
        on_limit: OnLimit = "refuse",
    ) -> Quota:
        """Set how much a tenant, or one of its users, may submit and run. Replaces an earlier quota.

        Args:
            tenant: the tenant; `*`: every tenant without a quota.
            user: owner of the jobs; `*`: every owner without a quota; None: all jobs of the tenant together.
            queued: most jobs that may wait for their turn at a time.
            a_day: most jobs per day (UTC).
            bytes: most bytes of their bodies per day (UTC).
            rate: jobs per second, of which `burst` may arrive at once.
            running: most jobs at the broker and with workers at a time, over all queues; further ones wait.
            on_limit: whether a job beyond the rate is refused, or accepted and delayed until the rate allows it.

        Raises:
            InvalidOption: a value is invalid.
        """
        quota = Quota(
            tenant=tenant,
            user=user,
            queued=queued,
            a_day=a_day,
            bytes=bytes,
            rate=rate,
            burst=burst,
            running=running,
            on_limit=on_limit,
        )
        await self._change_quotas(lambda before: {**before, usage_name(tenant, user): quota})
        return quota

    set_quota = blocking(aset_quota)

    async def aremove_quota(self, tenant: str, user: str | None = None) -> None:
        """Remove the quota of a tenant or user.

        Raises:
            InvalidOption: there is no such quota.
        """
        own = usage_name(tenant, user)

        def change(before: dict[str, Quota]) -> dict[str, Quota]:
            if own not in before:
                known = sorted(quota.name for quota in before.values())
                name = tenant if user is None else f"{tenant}/{user}"
                raise InvalidOption(f"there is no quota of {name!r}: {did_you_mean(name, known)}")
            return {name: quota for name, quota in before.items() if name != own}

        await self._change_quotas(change)

    remove_quota = blocking(aremove_quota)

    async def _change_quotas(self, change: Callable[[dict[str, Quota]], dict[str, Quota]]) -> None:
        store = self._sessions.store()
        while True:
            before = await store.quotas()
            if await store.limit(Quotas(version=before.version + 1, quotas=change(before.quotas))):
                return
