"""Cancelled jobs: a sorted set in order of cancellation, with expiries and reasons in further keys."""

from typing import Final

from taskmq.contracts.stores import Revocation
from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import texts
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_REVOKE: Final = Script("revocations/revoke")
_REVOKED_SINCE: Final = Script("revocations/revoked_since")


class RedisRevocations:
    """The revoked jobs, all in one slot of a cluster: they are few and read together."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        await self._server.run(_REVOKE, list(self._keys.revocations), (job_id, reason, milliseconds(ttl)))

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        found = texts(await self._server.run(_REVOKED_SINCE, list(self._keys.revocations), (cursor, limit)))
        return [
            Revocation(job_id=job.decode(), reason=reason.decode(), cursor=int(at), until=int(until))
            for job, reason, at, until in zip(*[iter(found)] * 4, strict=True)
        ]
