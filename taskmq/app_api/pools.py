"""Pools, scheduling policies of queues, and quotas."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.api.pools import (
    BacklogView,
    PolicyBody,
    PolicyView,
    PoolBody,
    PoolList,
    PoolView,
    QuotaBody,
    QuotaView,
)
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, render_all, view_of
from taskmq.contracts.jobs import TenantBacklog
from taskmq.errors import InvalidOption, JobNotFound, RequestRefused
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from taskmq.model.units import did_you_mean
from taskmq.stored_jobs import QuotaState
from taskmq.stored_jobs.explanations import explain_job

# The number of backlogs that are explained at a time.
_TOGETHER: Final = 10


class AppPools(AppCalls):
    """Pools by tenant, and scheduling policies of queues."""

    async def list(self) -> PoolList:
        """List the pools, and the queue policies that override the apps' settings."""
        said = await self._app.pools.aread()
        return PoolList(
            version=said.version,
            items=[_view(pool) for _, pool in sorted(said.pools.items())],
            policies=[_policy_view(name, each) for name, each in sorted(said.queues.items())],
        )

    async def get(self, name: str) -> PoolView:
        """Return one pool by its name.

        Raises:
            RequestRefused: `pool_not_found`: no pool has the name.
        """
        return _view(await self._find(name))

    async def waiting(self, *, limit: int = 20) -> Sequence[BacklogView]:
        """Return up to `limit` tenants with due jobs that are not dispatched yet, those that wait longest first.

        Each has the reasons why its oldest job waits, and what would help it. A caller of one tenant gets only this
        one.

        Raises:
            InvalidOption: the limit is below 1.
        """
        if limit < 1:
            raise InvalidOption(f"limit={limit}: give at least 1")
        session, store, tenant = self._app.sessions.current(), self._app.sessions.store(), self._caller.tenant
        backlogs = [one for one in await store.dispatching.tenant_backlogs() if tenant in (None, one.tenant)]

        async def explain(one: TenantBacklog) -> BacklogView | None:
            try:
                record = await self._app.jobs.aget(one.first)
            except JobNotFound:
                # Ended and erased meanwhile.
                return None
            explained = await explain_job(session, store, record, reader=tenant, expects_start=False)
            return BacklogView(
                tenant=one.tenant,
                jobs=one.jobs,
                oldest=instant_text(one.oldest),
                first=one.first,
                task=record.task,
                queue=record.queue,
                reasons=explained.reasons,
                alternatives=[each.text for each in explained.alternatives],
            )

        found: list[BacklogView | None] = []
        for start in range(0, min(limit, len(backlogs)), _TOGETHER):
            try:
                async with asyncio.TaskGroup() as group:
                    together = backlogs[start : min(start + _TOGETHER, limit)]
                    explaining = [group.create_task(explain(one)) for one in together]
            except ExceptionGroup as failed:
                # The first to fail has stopped the others.
                raise failed.exceptions[0] from failed
            found += [task.result() for task in explaining]
        return [one for one in found if one is not None]

    async def put(self, name: str, body: PoolBody) -> PoolView:
        """Create or replace the pool of a tenant. Schedulers apply it within a second or two, also to waiting jobs.

        Raises:
            InvalidOption: an amount or the parent is invalid.
        """
        # Validated before it is written to the audit log.
        pool = TenantPool(
            name=name, parent=body.parent, weight=body.weight, min=body.min, max=body.max
        ).check_amounts()
        await self._caller.note_action(self._app, "pool.change", subject=name, after=msgspec.to_builtins(pool))
        return _view(
            await self._app.pools.aset(name, parent=pool.parent, weight=pool.weight, min=pool.min, max=pool.max)
        )

    async def remove(self, name: str) -> None:
        """Remove a pool. A pool with child pools cannot be removed.

        Raises:
            RequestRefused: `pool_not_found`: no pool has the name.
            InvalidOption: the pool has child pools.
        """
        await self._find(name)
        await self._caller.note_action(self._app, "pool.remove", subject=name)
        await self._app.pools.aremove(name)

    async def put_policy(self, queue: str, body: PolicyBody) -> PolicyView:
        """Set the scheduling policy of a queue's stored jobs, overriding the apps' setting."""
        await self._caller.note_action(self._app, "queue.policy", subject=queue, after=msgspec.to_builtins(body))
        wanted = QueuePolicy(**msgspec.structs.asdict(body))
        await self._app.pools.aset_policy(queue, wanted)
        return _policy_view(queue, wanted)

    async def remove_policy(self, queue: str) -> None:
        await self._caller.note_action(self._app, "queue.policy", subject=queue)
        await self._app.pools.aset_policy(queue, None)

    async def _find(self, name: str) -> TenantPool:
        known = (await self._app.pools.aread()).pools
        if name not in known:
            said = f"pool {name!r} not found: {did_you_mean(name, sorted(known))}"
            raise RequestRefused(said, status=404, code="pool_not_found")
        return known[name]


class AppQuotas(AppCalls):
    """Quotas of tenants and their users; `*` applies to each user."""

    async def list(self) -> Sequence[QuotaView]:
        """List the quotas, with their usage since midnight UTC."""
        return render_all(_quota_view, await self._app.pools.aquotas())

    async def put(self, tenant: str, body: QuotaBody, *, user: str | None = None) -> QuotaView:
        """Set the quota of a tenant or one of its users, replacing the current one.

        Raises:
            InvalidOption: a limit is invalid.
        """
        limits = msgspec.structs.asdict(body)
        await self._caller.note_action(self._app, "quota.change", subject=_subject(tenant, user), after=limits)
        quota = await self._app.pools.aset_quota(tenant, user, **limits)
        state = await self._find(tenant, user)
        return _quota_view(state or QuotaState(quota=quota, jobs=0, bytes=0))

    async def remove(self, tenant: str, *, user: str | None = None) -> None:
        """Remove the quota of a tenant or one of its users.

        Raises:
            RequestRefused: `quota_not_found`: the quota does not exist.
        """
        subject = _subject(tenant, user)
        if await self._find(tenant, user) is None:
            raise RequestRefused(f"quota of {subject!r} not found", status=404, code="quota_not_found")
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
    return view_of(PolicyView, policy, queue=queue)


def _quota_view(state: QuotaState) -> QuotaView:
    return QuotaView(
        **{name: getattr(state.quota, name) for name in state.quota.__struct_fields__},
        jobs_today=state.jobs,
        bytes_today=state.bytes,
    )
