"""The state of `memory://NAME` in this process."""

import asyncio
import threading

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import ResultExpired, StateUnavailable
from taskmq.model.clock import Clock
from taskmq_local.database.loop_wakeup import call_on
from taskmq_local.memory.claims import MemoryClaims
from taskmq_local.memory.data import MemoryData, open_memory_data
from taskmq_local.memory.delays import MemoryDelays
from taskmq_local.memory.leases import MemoryLeases
from taskmq_local.memory.limits import MemoryLimits
from taskmq_local.memory.notes import MemoryCheckpoints, MemoryProgress
from taskmq_local.memory.results import ResultTable, StartTable
from taskmq_local.memory.revocations import MemoryRevocations
from taskmq_local.memory.schedules import MemorySchedules


def open_memory_state(url: str, options: BrokerOptions) -> "MemoryState":
    """Return a state for `memory://NAME`, which shares its data with the broker of the same URL."""
    return MemoryState(open_memory_data(url.partition("://")[2]), options)


class MemoryState:
    """The state of one `MemoryData`."""

    def __init__(self, data: MemoryData, options: BrokerOptions) -> None:
        self.address = f"memory://{data.name}"
        self._open_state = _OpenState(self.address)
        self.results = MemoryResults(data.results, options.clock, self._open_state)
        self.starts = MemoryStarts(data.starts, options.clock, self._open_state)
        self.progress = MemoryProgress(data.progress, options.clock, check_open=self._open_state.check)
        self.checkpoints = MemoryCheckpoints(data.checkpoints, options.clock, check_open=self._open_state.check)
        self.delays = MemoryDelays(data.delays, options.clock, check_open=self._open_state.check)
        self.revocations = MemoryRevocations(data.revocations, options.clock, check_open=self._open_state.check)
        self.schedules = MemorySchedules(data.schedules, options.clock, check_open=self._open_state.check)
        self.leases = MemoryLeases(data.leases, options.clock, check_open=self._open_state.check)
        self.limits = MemoryLimits(data.limits, options.clock, check_open=self._open_state.check)
        self.claims = MemoryClaims(data.claims, options.clock, check_open=self._open_state.check)

    async def aclose(self) -> None:
        self._open_state.close()


class _OpenState:
    """Whether the state is still open, and the callers that wait inside it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._closed = False
        self._inside: set[asyncio.Future[ResultRecord]] = set()

    def check(self) -> None:
        if self._closed:
            raise self._error()

    def close(self) -> None:
        self._closed = True
        for future in self._inside:
            if not future.done():
                future.set_exception(self._error())

    async def wait_inside(self, future: asyncio.Future[ResultRecord]) -> ResultRecord:
        """Wait for the future; raise an error once the state is closed."""
        self._inside.add(future)
        try:
            return await future
        finally:
            self._inside.discard(future)

    def _error(self) -> StateUnavailable:
        return StateUnavailable(f"the state {self._address} was closed")


class MemoryResults:
    """Results by job id, kept in memory."""

    def __init__(self, table: ResultTable, clock: Clock, open_state: _OpenState) -> None:
        self._table = table
        self._clock = clock
        self._open_state = open_state

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        self._open_state.check()
        self._table.put(record, ttl=ttl, now=self._clock.now_ms())

    async def get(self, job_id: str) -> ResultRecord | None:
        self._open_state.check()
        return self._table.get(job_id, now=self._clock.now_ms())

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        self._open_state.check()
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        future: asyncio.Future[ResultRecord] = loop.create_future()

        def tell(record: ResultRecord) -> None:
            call_on(loop, thread, lambda: None if future.done() else future.set_result(record))

        # Join first, then read: a record put in between is seen by both.
        self._table.join(job_id, tell)
        try:
            if (record := self._table.get(job_id, now=self._clock.now_ms())) is not None:
                return record
            if self._table.has_expired(job_id, now=self._clock.now_ms()):
                raise ResultExpired(job_id)
            async with asyncio.timeout(timeout):
                return await self._open_state.wait_inside(future)
        except TimeoutError:
            return None
        finally:
            self._table.leave(job_id, tell)

    async def has_expired(self, job_id: str) -> bool:
        self._open_state.check()
        return self._table.has_expired(job_id, now=self._clock.now_ms())


class MemoryStarts:
    """Runs begun but not ended, kept in memory."""

    def __init__(self, table: StartTable, clock: Clock, open_state: _OpenState) -> None:
        self._table = table
        self._clock = clock
        self._open_state = open_state

    async def begin(self, job_id: str, *, ttl: float) -> int:
        self._open_state.check()
        now = self._clock.now_ms()
        return self._table.begin(job_id, expires=now + round(ttl * 1000), now=now)

    async def end(self, job_id: str) -> None:
        self._open_state.check()
        self._table.end(job_id)
