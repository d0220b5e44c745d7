"""Messages that wait in the state of `memory://NAME`."""

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from taskmq.contracts.stores import TakenMessage, WaitingMessage
from taskmq.model.clock import Clock
from taskmq_local.database.loop_wakeup import call_on
from taskmq_local.memory.delay_shelf import DelayShelf

__all__ = ["MemoryDelays"]


class MemoryDelays:
    """One message per job, kept by the hub.

    Args:
        check_open: raises when the state was closed.
    """

    def __init__(self, shelf: DelayShelf, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._check_open = check_open

    async def put(self, message: WaitingMessage) -> None:
        self._check_open()
        self._shelf.put(message)

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        self._check_open()
        instant = self._clock.now_ms()
        return self._shelf.take(due=now, limit=limit, until=instant + round(lease * 1000), now=instant)

    async def done(self, taken: Sequence[TakenMessage]) -> None:
        self._check_open()
        self._shelf.done(taken)

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        self._check_open()
        self._shelf.give_back(taken)

    async def next_due(self) -> int | None:
        self._check_open()
        return self._shelf.next_due(now=self._clock.now_ms())

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def tell() -> None:
            call_on(loop, thread, heard)

        self._shelf.listen(tell)
        return lambda: self._shelf.stop_listening(tell)

    async def count(self) -> int:
        self._check_open()
        return len(self._shelf.messages())

    async def find(self, job_id: str) -> WaitingMessage | None:
        self._check_open()
        return self._shelf.find(job_id)

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        self._check_open()
        found = (
            message
            for message in self._shelf.messages()
            if task in (None, message.task) and (queues is None or message.queue in queues)
        )
        return list(islice(found, limit))

    async def cancel(self, job_id: str) -> bool:
        self._check_open()
        return self._shelf.cancel(job_id, now=self._clock.now_ms())

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        self._check_open()
        return self._shelf.swap(found, changed, now=self._clock.now_ms())
