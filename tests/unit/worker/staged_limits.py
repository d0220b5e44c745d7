"""The limits of a staged state."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from taskmq.contracts.stores import Demand, LimitEntry, LimitStore, LimitUsage, PlaceDemand
from taskmq.errors import StateUnavailable

T = TypeVar("T")


class StagedLimits:
    """Limits with faults for writes; reads have none.

    Attributes:
        fault: "NONE", "REFUSED" (no effect) or "UNKNOWN" (an effect, and an error).
        once: the fault of the next call only.
        delays: called after one call each, before its answer is returned.
        names: the calls so far.
    """

    def __init__(self, inner: LimitStore) -> None:
        self._inner = inner
        self.fault = "NONE"
        self.once: str | None = None
        self.delays: list[Callable[[], None]] = []
        self.names: list[str] = []

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        return await self._meet(
            "acquire",
            lambda: self._inner.acquire(job_id, demands, hold=hold, seconds=seconds, patience=patience),
        )

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        return await self._meet("renew", lambda: self._inner.renew(holds, seconds=seconds))

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        await self._meet("release", lambda: self._inner.release(hold, keys, held=held))

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        await self._meet("withdraw", lambda: self._inner.withdraw(job_id, keys))

    async def usage(self, key: str) -> LimitUsage:
        return await self._inner.usage(key)

    async def _meet(self, name: str, effect: Callable[[], Awaitable[T]]) -> T:
        fault, self.once = self.once or self.fault, None
        self.names.append(name)
        await asyncio.sleep(0)
        error = StateUnavailable("no state (staged)", is_certain=fault == "REFUSED")
        if fault == "REFUSED":
            raise error
        answer = await effect()
        if self.delays:
            self.delays.pop(0)()
        if fault == "UNKNOWN":
            raise error
        return answer
