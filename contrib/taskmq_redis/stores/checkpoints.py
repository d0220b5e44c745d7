"""Checkpoints of runs."""

from typing import Final

from taskmq.contracts.stores import BegunRun
from taskmq_redis.keys import Keys
from taskmq_redis.link.replies import flag, texts
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.results import milliseconds

_BEGIN_RUN: Final = Script("checkpoints/begin_run")
_FORGET_RUN: Final = Script("checkpoints/forget_run")
_SAVE: Final = Script("checkpoints/save")


class RedisCheckpoints:
    """Values by job and name, and the token of the job's last run."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        arguments = (attempt, milliseconds(ttl))
        reply = texts(await self._server.run(_BEGIN_RUN, [self._keys.checkpoints(job_id)], arguments))
        token, *saved = reply or [b""]
        if not token:
            return None
        return BegunRun(int(token), dict(zip(map(bytes.decode, saved[::2]), saved[1::2], strict=True)))

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        arguments = (str(token), name, value, milliseconds(ttl))
        return flag(await self._server.run(_SAVE, [self._keys.checkpoints(job_id)], arguments))

    async def forget(self, job_id: str, *, token: int) -> None:
        await self._server.run(_FORGET_RUN, [self._keys.checkpoints(job_id)], (str(token),))
