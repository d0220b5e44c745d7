"""Progress of jobs."""

from typing import Final

import msgspec

from taskmq.contracts.stores import ProgressRecord
from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import decode
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_REPORT: Final = Script("progress/report")

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ProgressRecord)


class RedisProgress:
    """The last record of each job."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        arguments = (record.attempt, record.started, _encode(record), milliseconds(ttl))
        await self._server.run(_REPORT, [self._keys.progress(record.job_id)], arguments)

    async def find(self, job_id: str) -> ProgressRecord | None:
        key = self._keys.progress(job_id)
        return decode(await self._server.ask("HGET", key, "record", key=key), _decoder)
