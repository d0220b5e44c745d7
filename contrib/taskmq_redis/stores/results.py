"""Results, and waits for them."""

import asyncio
import random
from contextlib import suppress
from typing import Final

import msgspec

from taskmq.contracts.stores import ResultRecord, remembered_for
from taskmq.errors import ResultExpired, StateUnavailable
from taskmq_redis.keys import Keys
from taskmq_redis.link.pubsub import PubSub
from taskmq_redis.link.replies import decode
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script

_PUT_RESULT: Final = Script("results/put_result")

# The first read takes place however short the timeout is.
_FIRST_LOOK: Final = 1.0
_PAUSE: Final = 1.0

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ResultRecord)


class RedisResults:
    """Results by job id.

    A caller that waits reads first, then listens, and reads again whenever the subscription is confirmed. So one of
    the two sees a record put at any time.
    """

    def __init__(self, server: Server, pubsub: PubSub, keys: Keys) -> None:
        self._server = server
        self._pubsub = pubsub
        self._keys = keys
        self._waiting: set[asyncio.Future[ResultRecord]] = set()
        self._looking: set[asyncio.Task[None]] = set()

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        keys = [self._keys.result(record.job_id), self._keys.ended_mark(record.job_id)]
        arguments = (record.state, _encode(record), milliseconds(ttl), milliseconds(remembered_for(ttl)))
        await self._server.run(_PUT_RESULT, keys, arguments)

    async def get(self, job_id: str) -> ResultRecord | None:
        return await self._get(self._keys.result(job_id), timeout=None)

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        key = self._keys.result(job_id)
        first = self._server.timeout if timeout is None else min(max(timeout, _FIRST_LOOK), self._server.timeout)
        if (record := await self._get(key, timeout=first)) is not None:
            return record
        if await self._has_ended(job_id, timeout=first):
            # Both keys are written together: the record may have arrived between the two reads.
            if (record := await self._get(key, timeout=first)) is not None:
                return record
            raise ResultExpired(job_id)
        self._server.check_open()
        future: asyncio.Future[ResultRecord] = loop.create_future()
        stop = self._pubsub.listen(key, lambda payload: self._on_message(key, payload, future))
        self._waiting.add(future)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            return None
        finally:
            stop()
            self._waiting.discard(future)

    async def has_expired(self, job_id: str) -> bool:
        return await self._has_ended(job_id, timeout=None) and await self.get(job_id) is None

    async def aclose(self) -> None:
        """End all waits for results."""
        for future in self._waiting:
            if not future.done():
                future.set_exception(StateUnavailable(f"the state {self._server.address} was closed"))
        for task in tuple(self._looking):
            task.cancel()
        if self._looking:
            await asyncio.wait(self._looking)

    async def _get(self, key: str, *, timeout: float | None) -> ResultRecord | None:
        return decode(await self._server.ask("HGET", key, "record", key=key, timeout=timeout), _decoder)

    async def _has_ended(self, job_id: str, *, timeout: float | None) -> bool:
        key = self._keys.ended_mark(job_id)
        return await self._server.ask("HGET", key, "state", key=key, timeout=timeout) is not None

    def _on_message(self, key: str, payload: bytes, future: asyncio.Future[ResultRecord]) -> None:
        if payload:
            with suppress(StateUnavailable):
                _end(future, decode(payload, _decoder))
        elif not future.done():
            task = asyncio.get_running_loop().create_task(self._read_again(key, future))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _read_again(self, key: str, future: asyncio.Future[ResultRecord]) -> None:
        while not future.done():
            try:
                record = await self._get(key, timeout=None)
            except StateUnavailable:
                # The subscription may be fine already, and would not be confirmed again.
                await asyncio.sleep(random.uniform(_PAUSE / 2, _PAUSE))
                continue
            _end(future, record)
            return


def milliseconds(seconds: float) -> int:
    """Convert a time to live to milliseconds, at least one."""
    return max(round(seconds * 1000), 1)


def _end(future: asyncio.Future[ResultRecord], record: ResultRecord | None) -> None:
    if record is not None and not future.done():
        future.set_result(record)
