# Generated from taskmq/http/aio/pools.py by `python -m tests.house.blocking_client`: change that one.
"""Whose turn it is, and how much may be submitted: pools, policies of queues, quotas."""

from collections.abc import Sequence
from typing import Any

from taskmq.api.pools import PolicyBody, PolicyView, PoolBody, PoolList, PoolView, QuotaBody, QuotaList, QuotaView
from taskmq.http._generated.connection import HttpConnection

__all__ = ["PoolCalls", "QuotaCalls"]

_Answer = dict[str, Any]


class PoolCalls:
    """Pools, by the tenants whose jobs belong to them; and policies of queues."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def list(self) -> PoolList:
        """All pools and policies."""
        return self._connection.ask("listPools", PoolList)

    def get(self, name: str) -> PoolView:
        """Return one pool by its name."""
        return self._connection.ask("getPool", PoolView, path={"name": name})

    def put(self, name: str, body: PoolBody) -> PoolView:
        """Say what the pool of a tenant is."""
        return self._connection.ask("putPool", PoolView, path={"name": name}, body=body)

    def remove(self, name: str) -> None:
        """Take a pool's description away."""
        self._connection.ask("removePool", _Answer, path={"name": name})

    def put_policy(self, queue: str, body: PolicyBody) -> PolicyView:
        """Have a queue go by this policy, whatever apps say."""
        return self._connection.ask("putQueuePolicy", PolicyView, path={"name": queue}, body=body)

    def remove_policy(self, queue: str) -> None:
        """Have a queue go by what apps say."""
        self._connection.ask("removeQueuePolicy", _Answer, path={"name": queue})


class QuotaCalls:
    """What tenants, and users of them, may submit; `*` is each of them."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def list(self) -> Sequence[QuotaView]:
        """All quotas, and what of them is used up."""
        return (self._connection.ask("listQuotas", QuotaList)).items

    def put(self, tenant: str, body: QuotaBody, *, user: str | None = None) -> QuotaView:
        """Say what they may submit, in place of what was said before."""
        return self._connection.ask("putQuota", QuotaView, path={"name": tenant}, query={"user": user}, body=body)

    def remove(self, tenant: str, *, user: str | None = None) -> None:
        """Take a quota away."""
        self._connection.ask("removeQuota", _Answer, path={"name": tenant}, query={"user": user})
