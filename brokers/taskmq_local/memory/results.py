"""Results, starts and revocations of `memory://NAME`."""

import asyncio
import threading
from collections.abc import Callable

from msgspec.structs import replace

from taskmq.contracts.stores import ResultRecord, Revocation, remembered_for
from taskmq.errors import ResultExpired
from taskmq_local.database.loop_wakeup import call_on
from taskmq_local.memory.store import Expiring, MemoryStore

_Receive = Callable[[ResultRecord], None]


class ResultData(Expiring[ResultRecord]):
    """Results by job id, and callers that wait for them.

    Attributes:
        gone: ids whose result existed; remembered for longer than the result.
        waiters: calls for each later record of a job, from any thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gone = Expiring[bool]()
        self.waiters: dict[str, list[_Receive]] = {}

    def clear(self) -> None:
        super().clear()
        self.gone.clear()


class MemoryResults(MemoryStore[ResultData]):
    """Results by job id, kept in memory."""

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        now = self._enter()
        data = self._data
        with data.lock:
            before = data.find(record.job_id, now=now)
            if before is not None and (before.state.is_sticky or before == record):
                return
            data.put(record.job_id, record, expires=now + round(ttl * 1000))
            data.gone.put(record.job_id, True, expires=now + round(remembered_for(ttl) * 1000))
            waiters = list(data.waiters.get(record.job_id, ()))
        for receive in waiters:
            receive(record)

    async def get(self, job_id: str) -> ResultRecord | None:
        return self._data.find(job_id, now=self._enter())

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        self._enter()
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        future: asyncio.Future[ResultRecord] = loop.create_future()

        def receive(record: ResultRecord) -> None:
            call_on(loop, thread, lambda: None if future.done() else future.set_result(record))

        # Join first, then read: a record put in between is seen by both.
        with self._data.lock:
            self._data.waiters.setdefault(job_id, []).append(receive)
        try:
            if (record := await self.get(job_id)) is not None:
                return record
            if await self.has_expired(job_id):
                raise ResultExpired(job_id)
            async with asyncio.timeout(timeout):
                return await self._state.wait_inside(future)
        except TimeoutError:
            return None
        finally:
            self._leave(job_id, receive)

    async def has_expired(self, job_id: str) -> bool:
        now = self._enter()
        with self._data.lock:
            return self._data.find(job_id, now=now) is None and self._data.gone.find(job_id, now=now) is not None

    def _leave(self, job_id: str, receive: _Receive) -> None:
        with self._data.lock:
            waiters = self._data.waiters[job_id]
            waiters.remove(receive)
            if not waiters:
                del self._data.waiters[job_id]


class MemoryStarts(MemoryStore[Expiring[int]]):
    """Numbers of runs begun but not ended, kept in memory."""

    async def begin(self, job_id: str, *, ttl: float) -> int:
        now = self._enter()
        with self._data.lock:
            count = (self._data.find(job_id, now=now) or 0) + 1
            self._data.put(job_id, count, expires=now + round(ttl * 1000))
            return count

    async def end(self, job_id: str) -> None:
        self._enter()
        self._data.remove(job_id)


class MemoryRevocations(MemoryStore[Expiring[Revocation]]):
    """Revoked jobs, kept in memory in the order of their revocation."""

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        now = self._enter()
        until = now + round(ttl * 1000)
        with self._data.lock:
            known = self._data.find(job_id, now=now)
            if known is None:
                made = Revocation(job_id=job_id, reason=reason, cursor=self._data.next_token(), until=until)
            else:
                made = replace(known, until=max(until, known.until))
            self._data.put(job_id, made, expires=made.until)

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        return [one for _, one in self._data.items(now=self._enter()) if one.cursor > cursor][:limit]
