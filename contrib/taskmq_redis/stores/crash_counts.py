"""Runs begun but not ended."""

import uuid
from typing import Final

from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import integer
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_BEGIN: Final = Script("crash_counts/begin")
_END: Final = Script("crash_counts/end")


class RedisStarts:
    """Counts in Redis of how often jobs were started."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def begin(self, job_id: str, *, ttl: float) -> int:
        arguments = (milliseconds(ttl), uuid.uuid4().hex)
        return integer(await self._server.run(_BEGIN, [self._keys.starts(job_id)], arguments))

    async def end(self, job_id: str) -> None:
        await self._server.run(_END, [self._keys.starts(job_id)], ())
