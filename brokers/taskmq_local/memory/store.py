"""Parts of the state of `memory://NAME`: shared data, which expires, and the calls of one state."""

import asyncio
import threading
from heapq import heappop, heappush
from typing import Generic, TypeVar

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import StateUnavailable
from taskmq.model.clock import Clock

V = TypeVar("V")
D = TypeVar("D")


class Expiring(Generic[V]):
    """Values by key, each until its expiry. Instants are milliseconds of the caller's clock.

    Attributes:
        lock: held around calls that belong together; each call takes it by itself too.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # By key: the value, its expiry, and the next check, which is no later.
        self._kept: dict[str, tuple[V, int, int]] = {}
        self._checks: list[tuple[int, str]] = []
        self._last_token = 0

    def put(self, key: str, value: V, *, expires: int) -> None:
        """Store or replace a value; a replaced one keeps its position."""
        with self.lock:
            before = self._kept.get(key)
            check = expires if before is None else min(before[2], expires)
            self._kept[key] = (value, expires, check)
            if before is None or check < before[2]:
                heappush(self._checks, (check, key))

    def find(self, key: str, *, now: int) -> V | None:
        with self.lock:
            self._drop_expired(now)
            kept = self._kept.get(key)
            return None if kept is None else kept[0]

    def items(self, *, now: int) -> list[tuple[str, V]]:
        """Return all keys and values, in the order of their first `put`."""
        with self.lock:
            self._drop_expired(now)
            return [(key, kept[0]) for key, kept in self._kept.items()]

    def remove(self, key: str) -> None:
        with self.lock:
            self._kept.pop(key, None)

    def next_token(self) -> int:
        """Issue a token, greater than all before."""
        with self.lock:
            self._last_token += 1
            return self._last_token

    def clear(self) -> None:
        """Remove all values; tokens continue to grow."""
        with self.lock:
            self._kept.clear()
            self._checks.clear()

    def _drop_expired(self, now: int) -> None:
        while self._checks and self._checks[0][0] <= now:
            at, key = heappop(self._checks)
            kept = self._kept.get(key)
            if kept is None or kept[2] != at:
                continue
            value, expires, _ = kept
            if expires <= now:
                del self._kept[key]
            else:
                self._kept[key] = (value, expires, expires)
                heappush(self._checks, (expires, key))


class OpenState:
    """Whether a state is still open, and the callers that wait inside it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._closed = False
        self._inside: set[asyncio.Future[ResultRecord]] = set()

    def check(self) -> None:
        """Raise `StateUnavailable` if the state was closed."""
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


class MemoryStore(Generic[D]):
    """A store of one state, over data that all states of its name share."""

    def __init__(self, data: D, clock: Clock, state: OpenState) -> None:
        self._data = data
        self._clock = clock
        self._state = state

    def _enter(self) -> int:
        """Return the time in ms.

        Raises:
            StateUnavailable: the state was closed.
        """
        self._state.check()
        return self._clock.now_ms()
