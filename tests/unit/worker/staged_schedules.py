"""The schedules of a staged state."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange, ScheduleStore
from taskmq.errors import StateUnavailable

if TYPE_CHECKING:
    from tests.unit.worker.staged import Points

T = TypeVar("T")


class StagedSchedules:
    """Reads and swaps have the faults of `points`; polling for changes has none."""

    def __init__(self, inner: ScheduleStore, points: "Points") -> None:
        self._inner = inner
        self._points = points

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        return await self._meet("read", lambda: self._inner.read(names))

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        return await self._meet("swap", lambda: self._inner.swap(changes, ttl=ttl))

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        return await self._inner.define(scope, name, before=before, after=after)

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        await self._inner.tell(scope, names)

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        return await self._inner.list_changed(scope, cursor, limit=limit)

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        return self._inner.listen(scope, heard)

    async def _meet(self, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        fault = self._points.meet(name).name
        if fault == "HANGS":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)
        error = StateUnavailable("no state (staged)", is_certain=fault == "REFUSED")
        if fault == "REFUSED":
            raise error
        answer = await effect()
        if fault == "UNKNOWN":
            raise error
        return answer
