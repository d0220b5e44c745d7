"""Whose turn it is, and how much may be submitted: pools, policies of queues, quotas."""

from collections.abc import Sequence
from typing import Any

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaList, QuotaView
from taskmq.http.aio.connection import AsyncHttpConnection

__all__ = ["AsyncPoolCalls", "AsyncQuotaCalls"]

_Answer = dict[str, Any]


class AsyncPoolCalls:
    """Pools, by the tenants whose jobs belong to them; and policies of queues."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def list(self) -> PoolList:
        """All pools and policies."""
        return await self._connection.ask("listPools", PoolList)

    async def get(self, name: str) -> PoolView:
        """Return one pool by its name."""
        return await self._connection.ask("getPool", PoolView, path={"name": name})

    async def put(self, name: str, body: PoolBody) -> PoolView:
        """Say what the pool of a tenant is."""
        return await self._connection.ask("putPool", PoolView, path={"name": name}, body=body)

    async def remove(self, name: str) -> None:
        """Take a pool's description away."""
        await self._connection.ask("removePool", _Answer, path={"name": name})

    async def put_policy(self, queue: str, body: PolicyBody) -> PolicyView:
        """Have a queue go by this policy, whatever apps say."""
        return await self._connection.ask("putQueuePolicy", PolicyView, path={"name": queue}, body=body)

    async def remove_policy(self, queue: str) -> None:
        """Have a queue go by what apps say."""
        await self._connection.ask("removeQueuePolicy", _Answer, path={"name": queue})


class AsyncQuotaCalls:
    """What tenants, and users of them, may submit; `*` is each of them."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[QuotaView]:
        """All quotas, and what of them is used up."""
        return (await self._connection.ask("listQuotas", QuotaList)).items

    async def put(self, tenant: str, body: QuotaBody, *, user: str | None = None) -> QuotaView:
        """Say what they may submit, in place of what was said before."""
        return await self._connection.ask(
            "putQuota", QuotaView, path={"name": tenant}, query={"user": user}, body=body
        )

    async def remove(self, tenant: str, *, user: str | None = None) -> None:
        """Take a quota away."""
        await self._connection.ask("removeQuota", _Answer, path={"name": tenant}, query={"user": user})
