"""Progress and checkpoints of `memory://NAME`, kept by the hub."""

from collections.abc import Callable

from taskmq.contracts.stores import BegunRun, ProgressRecord
from taskmq.model.clock import Clock
from taskmq_local.memory.note_shelves import CheckpointShelf, ProgressShelf

__all__ = ["MemoryCheckpoints", "MemoryProgress"]


class MemoryProgress:
    """The last progress of each job."""

    def __init__(self, shelf: ProgressShelf, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._check_open = check_open

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        self._check_open()
        now = self._clock.now_ms()
        self._shelf.report(record, expires=now + round(ttl * 1000), now=now)

    async def find(self, job_id: str) -> ProgressRecord | None:
        self._check_open()
        return self._shelf.find(job_id, now=self._clock.now_ms())


class MemoryCheckpoints:
    """What the runs of jobs have saved."""

    def __init__(self, shelf: CheckpointShelf, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._check_open = check_open

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        self._check_open()
        now = self._clock.now_ms()
        return self._shelf.begin(job_id, attempt=attempt, expires=now + round(ttl * 1000), now=now)

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        self._check_open()
        now = self._clock.now_ms()
        return self._shelf.save(job_id, name, value, token=token, expires=now + round(ttl * 1000), now=now)

    async def forget(self, job_id: str, *, token: int) -> None:
        self._check_open()
        self._shelf.forget(job_id, token=token, now=self._clock.now_ms())
