"""Messages that wait in the state of `memory://NAME`."""

import asyncio
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice

import msgspec

from taskmq.contracts.stores import TakenMessage, WaitingMessage
from taskmq_local.database.loop_wakeup import call_on
from taskmq_local.memory.store import MemoryStore


class _Kept(msgspec.Struct):
    message: WaitingMessage
    number: int
    taken_until: int = 0


class DelayTable:
    """Delayed messages, one per job, ordered by due time. Instants are milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._order: list[tuple[int, int, str]] = []
        self._numbers = count(1)
        self._listeners: list[Callable[[], None]] = []

    def put(self, message: WaitingMessage, *, now: int) -> None:
        with self._lock:
            is_first = self._keep(message, now=now)
            listeners = list(self._listeners) if is_first else []
        for heard in listeners:
            heard()

    def take(self, *, due: int, limit: int, until: int, now: int) -> list[TakenMessage]:
        with self._lock:
            taken: list[TakenMessage] = []
            for kept in self._in_order():
                if kept.message.due > due or len(taken) >= limit:
                    break
                if kept.taken_until <= now:
                    kept.taken_until = until
                    taken.append(TakenMessage(kept.message, str(kept.number)))
            return taken

    def remove_all(self, taken: Iterable[TakenMessage]) -> None:
        with self._lock:
            for one in taken:
                if self._find(one) is not None:
                    self._remove(one.message.job_id)

    def give_back(self, taken: Iterable[TakenMessage]) -> None:
        with self._lock:
            for one in taken:
                if (kept := self._find(one)) is not None:
                    kept.taken_until = 0
            listeners = list(self._listeners)
        for heard in listeners:
            heard()

    def next_due(self, *, now: int) -> int | None:
        with self._lock:
            return next((kept.message.due for kept in self._in_order() if kept.taken_until <= now), None)

    def listen(self, heard: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.append(heard)

    def stop_listening(self, heard: Callable[[], None]) -> None:
        with self._lock:
            if heard in self._listeners:
                self._listeners.remove(heard)

    def messages(self) -> list[WaitingMessage]:
        """Return all messages, earliest first."""
        with self._lock:
            return [kept.message for kept in self._in_order()]

    def find(self, job_id: str) -> WaitingMessage | None:
        with self._lock:
            kept = self._kept.get(job_id)
            return kept.message if kept is not None else None

    def cancel(self, job_id: str, *, now: int) -> bool:
        with self._lock:
            kept = self._kept.get(job_id)
            if kept is None or kept.taken_until > now:
                return False
            self._remove(job_id)
            return True

    def swap(self, found: WaitingMessage, changed: WaitingMessage, *, now: int) -> bool:
        with self._lock:
            kept = self._kept.get(found.job_id)
            if kept is None or kept.message != found or kept.taken_until > now:
                return False
            is_first = self._keep(changed, now=now)
            listeners = list(self._listeners) if is_first else []
        for heard in listeners:
            heard()
        return True

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._order.clear()

    def _keep(self, message: WaitingMessage, *, now: int) -> bool:
        """Store the message; return whether it is now the earliest that is not taken."""
        self._remove(message.job_id)
        number = next(self._numbers)
        self._kept[message.job_id] = _Kept(message, number)
        insort(self._order, (message.due, number, message.job_id))
        first = next(kept for kept in self._in_order() if kept.taken_until <= now)
        return first.number == number

    def _remove(self, job_id: str) -> None:
        kept = self._kept.pop(job_id, None)
        if kept is not None:
            del self._order[bisect_left(self._order, (kept.message.due, kept.number, job_id))]

    def _find(self, taken: TakenMessage) -> _Kept | None:
        kept = self._kept.get(taken.message.job_id)
        return kept if kept is not None and str(kept.number) == taken.token else None

    def _in_order(self) -> Iterator[_Kept]:
        return (self._kept[job_id] for _, _, job_id in self._order)


class MemoryDelays(MemoryStore[DelayTable]):
    """Delayed messages, one per job, kept in memory."""

    async def put(self, message: WaitingMessage) -> None:
        self._data.put(message, now=self._enter())

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        instant = self._enter()
        return self._data.take(due=now, limit=limit, until=instant + round(lease * 1000), now=instant)

    async def mark_done(self, taken: Sequence[TakenMessage]) -> None:
        self._enter()
        self._data.remove_all(taken)

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        self._enter()
        self._data.give_back(taken)

    async def next_due(self) -> int | None:
        return self._data.next_due(now=self._enter())

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def notify() -> None:
            call_on(loop, thread, heard)

        self._data.listen(notify)
        return lambda: self._data.stop_listening(notify)

    async def count(self) -> int:
        self._enter()
        return len(self._data.messages())

    async def find(self, job_id: str) -> WaitingMessage | None:
        self._enter()
        return self._data.find(job_id)

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        self._enter()
        found = (
            message
            for message in self._data.messages()
            if task in (None, message.task) and (queues is None or message.queue in queues)
        )
        return list(islice(found, limit))

    async def cancel(self, job_id: str) -> bool:
        return self._data.cancel(job_id, now=self._enter())

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        return self._data.swap(found, changed, now=self._enter())
