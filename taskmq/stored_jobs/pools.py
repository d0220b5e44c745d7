"""`app.pools`: whose turn it is in the queues of the store, and how much a tenant may submit."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from taskmq.client.sessions import Sessions, blocking
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import QueuePolicy, Sharing, TenantPool
from taskmq.model.jobs.quotas import OnLimit, Quota, Quotas, usage_name
from taskmq.model.topology import Policy, check_queue_name
from taskmq.model.units import did_you_mean

__all__ = ["Pools", "QuotaState"]

_DAY = 86_400_000


class QuotaState(msgspec.Struct, frozen=True, kw_only=True):
    """A quota, and what of it is used up.

    Attributes:
        jobs, bytes: submitted since midnight UTC; of a quota for everybody (`*`) those without a tenant.
    """

    quota: Quota
    jobs: int
    bytes: int


class Pools:
    """Pools of tenants, policies of queues, and quotas, as operators have said them for everybody who uses the store.

    Schedulers and submitters follow a change within a second or two, also for what waits already. What begins with
    `a` is for coroutines. Each method may raise `StoreUnavailable`, and `UnsupportedFeature` where the app has no
    store.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def aread(self) -> Sharing:
        """All pools, and the policies that were said instead of those of apps."""
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
        """Describe a pool, or change what is given of one that is there; as it is now.

        Args:
            name: the tenant whose jobs belong to it; `*`: each tenant that has no pool.
            parent: the pool that it is a part of; None: of the queue itself.
            weight: beside its neighbours, in `weighted` queues.
            min, max: how many jobs in flight, as `{"slots": 4}`: those that it gets first, and those above which
                its jobs wait.

        Raises:
            InvalidOption: a value that cannot be.
        """
        given = {"parent": parent, "weight": weight, "min": min, "max": max}
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not msgspec.UNSET}

        def change(before: Sharing) -> Sharing:
            pool = replace(before.pools.get(name) or TenantPool(name=name), **changes).check_amounts()
            return replace(before, pools={**before.pools, name: pool})

        return (await self._change(change)).pools[name]

    set = blocking(aset)

    async def aremove(self, name: str) -> None:
        """Take a pool's description away.

        Raises:
            InvalidOption: there is none, or another pool is a part of it.
        """

        def change(before: Sharing) -> Sharing:
            if name not in before.pools:
                raise InvalidOption(f"there is no pool {name!r}: {did_you_mean(name, sorted(before.pools))}")
            return replace(before, pools={other: pool for other, pool in before.pools.items() if other != name})

        await self._change(change)

    remove = blocking(aremove)

    async def aset_policy(self, queue: str, policy: "QueuePolicy | Policy | None") -> None:
        """Have a queue go by a policy, whatever apps say; None: by what they say.

        Raises:
            InvalidOption: a queue cannot be called that, or there is no such policy.
        """
        check_queue_name(queue)
        wanted = QueuePolicy(policy=policy) if isinstance(policy, str) else policy

        def change(before: Sharing) -> Sharing:
            queues = {name: each for name, each in before.queues.items() if name != queue}
            return replace(before, queues=queues if wanted is None else {**queues, queue: wanted})

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
        """Return all quotas, by tenant and user, with the usage of today."""
        store = self._sessions.store()
        said = (await store.quotas()).quotas
        today = await store.now_ms() // _DAY
        used = {name: each for name, each in (await store.quota_usage(list(said))).items() if each.day == today}
        return [
            QuotaState(
                quota=quota,
                jobs=used[name].jobs if name in used else 0,
                bytes=used[name].bytes if name in used else 0,
            )
            for name, quota in sorted(said.items(), key=lambda each: (each[1].tenant, each[1].user or ""))
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
        """Set how much a tenant, or one of its users, may submit and run; this replaces the earlier quota.

        Args:
            tenant: whose; `*`: each tenant without a quota.
            user: the owner of the jobs; `*`: each without a quota; None: all of the tenant together.
            queued: jobs that may wait for their turn at a time.
            a_day: jobs from midnight to midnight UTC.
            bytes: of their bodies, in the same time.
            rate: jobs a second, of which `burst` may come at once.
            running: jobs that may be at the broker and with workers at a time, in all queues; further ones wait.
            on_limit: whether a job beyond the rate is refused, or made and waits until the rate lets it go.

        Raises:
            InvalidOption: a value that cannot be.
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
        await self._limit(lambda before: {**before, usage_name(tenant, user): quota})
        return quota

    set_quota = blocking(aset_quota)

    async def aremove_quota(self, tenant: str, user: str | None = None) -> None:
        """Take a quota away.

        Raises:
            InvalidOption: there is none.
        """
        own = usage_name(tenant, user)

        def change(before: dict[str, Quota]) -> dict[str, Quota]:
            if own not in before:
                known = sorted(quota.name for quota in before.values())
                name = tenant if user is None else f"{tenant}/{user}"
                raise InvalidOption(f"there is no quota of {name!r}: {did_you_mean(name, known)}")
            return {name: quota for name, quota in before.items() if name != own}

        await self._limit(change)

    remove_quota = blocking(aremove_quota)

    async def _limit(self, change: Callable[[dict[str, Quota]], dict[str, Quota]]) -> None:
        store = self._sessions.store()
        while True:
            before = await store.quotas()
            if await store.limit(Quotas(version=before.version + 1, quotas=change(before.quotas))):
                return
