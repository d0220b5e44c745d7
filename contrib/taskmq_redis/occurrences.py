"""Which occurrences of schedules were emitted."""

import uuid

from taskmq_redis.keys import Keys
from taskmq_redis.replies import flag
from taskmq_redis.results import milliseconds
from taskmq_redis.scripts import CLAIM, COMPLETE
from taskmq_redis.server import Server

__all__ = ["RedisOccurrences"]


class RedisOccurrences:
    """Claims with a lease, by the server's clock."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def claim(self, occurrence: str, *, owner: str, lease: float, ttl: float) -> bool:
        arguments = (owner, milliseconds(lease), milliseconds(ttl), uuid.uuid4().hex)
        return flag(await self._server.run(CLAIM, [self._keys.occurrence(occurrence)], arguments))

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        await self._server.run(COMPLETE, [self._keys.occurrence(occurrence)], (milliseconds(ttl),))
