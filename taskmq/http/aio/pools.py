"""Pools, scheduling policies of queues, and quotas."""

from collections.abc import Sequence
from typing import Any

from taskmq.api.pools import (
    BacklogList,
    BacklogView,
    PolicyBody,
    PolicyView,
    PoolBody,
    PoolList,
    PoolView,
    QuotaBody,
    QuotaList,
    QuotaView,
)
from taskmq.http.aio.connection import AsyncCalls

_Answer = dict[str, Any]


class AsyncPoolCalls(AsyncCalls):
    """Pools by tenant, and scheduling policies of queues."""

    async def list(self) -> PoolList:
        """List all pools and policies."""
        return await self._connection.ask("listPools", PoolList)

    async def get(self, name: str) -> PoolView:
        """Return one pool by its name."""
        return await self._connection.ask("getPool", PoolView, path={"name": name})

    async def waiting(self, *, limit: int = 20) -> Sequence[BacklogView]:
        """Return up to `limit` tenants with due jobs that are not dispatched yet, those that wait longest first.

        Each has the reasons why its oldest job waits.
        """
        return (await self._connection.ask("listBacklogs", BacklogList, query={"limit": limit})).items

    async def put(self, name: str, body: PoolBody) -> PoolView:
        """Create or replace the pool of a tenant."""
        return await self._connection.ask("putPool", PoolView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Remove the pool of a tenant."""
        await self._connection.ask("removePool", _Answer, path={"name": name})

    async def put_policy(self, queue: str, body: PolicyBody) -> PolicyView:
        """Set the policy of a queue, overriding the apps' setting."""
        return await self._connection.ask("putQueuePolicy", PolicyView, path={"name": queue}, body=body)

    async def remove_policy(self, queue: str) -> None:
        """Remove the policy override of a queue."""
        await self._connection.ask("removeQueuePolicy", _Answer, path={"name": queue})


class AsyncQuotaCalls(AsyncCalls):
    """Quotas of tenants and users; `*` applies to each of them."""

    async def list(self) -> Sequence[QuotaView]:
        """List all quotas, with their usage."""
        return (await self._connection.ask("listQuotas", QuotaList)).items

    async def put(self, tenant: str, body: QuotaBody, *, user: str | None = None) -> QuotaView:
        """Set a quota, replacing the current one."""
        return await self._connection.ask(
            "putQuota", QuotaView, path={"name": tenant}, query={"user": user}, body=body
        )

    async def remove(self, tenant: str, *, user: str | None = None) -> None:
        """Remove a quota of a tenant or user."""
        await self._connection.ask("removeQuota", _Answer, path={"name": tenant}, query={"user": user})
