"""One file, one thread: where all SQLite work of a broker or a state happens.

Works are gathered on the event loop while the thread is busy, and handed over together: what has come up in the
meantime (publishes, acks, requeues, leases, results) shares one transaction and one sync of the disk. One hand-over
is under way at a time, so the batches grow with the load by themselves.
"""

import asyncio
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from taskmq_local.database.session import DatabaseSession
from taskmq_local.database.wakeup import Kind, notify
from taskmq_local.database.work import DatabaseCall, DatabaseFailure, Durability, Work

__all__ = ["Database"]

T = TypeVar("T")

_BATCH: Final = 200
# A worker that hears of a commit acknowledges, and starts what it has in hand; the results of that share the next
# transaction as long as each turn of the loop brings some.
_TURNS: Final = 64
_QUIET: Final = 2
_PATIENCE: Final = 30.0
_LAST_BREATH: Final = 2.0


_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, Database]]" = WeakKeyDictionary()


class Database:
    """The thread and the file of one broker or state object, used from one event loop.

    Args:
        is_shared: others on the loop may write to the same file through this one while it is open, see `partner`.
    """

    def __init__(self, path: Path, *, name: str, is_shared: bool = False) -> None:
        self.path = path
        self._is_shared = is_shared
        self.root = path.parent
        self._name = name
        self._waiting: deque[Work] = deque()
        self._inbox: queue.SimpleQueue[list[Work] | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_scheduled = False
        self._arrived = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._give_up = threading.Event()
        self._session = DatabaseSession(path, self._give_up)
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """Why something takes long, as far as is known."""
        if self._session.is_waiting:
            return f"{self.path} is locked by another process"
        return f"{self.path} is busy"

    def submit(self, work: Work) -> None:
        """Run `work` in one of the next transactions, after all that was submitted before."""
        self._waiting.append(work)
        self._arrived += 1
        self._idle.clear()
        if not self._is_busy and not self._is_scheduled:
            # At the end of this turn of the loop, with what else comes up in it.
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def note_arrival(self) -> None:
        """Something was added to a work that was submitted: more may come."""
        self._arrived += 1

    def partner(self) -> "Database":
        """The one on this loop through which others may write to the same file; this one where there is none.

        What several write through one shares its transactions, and none waits for the other's lock.
        """
        found = _shared.get(asyncio.get_running_loop(), {}).get(self.path)
        return self if found is None else found

    async def call(
        self,
        function: Callable[[sqlite3.Connection], T],
        *,
        care: Durability,
        wakeups: tuple[Kind, ...] = (),
        timeout: float = _PATIENCE,
    ) -> T:
        """What `function` returns, called with the connection in a transaction.

        Raises:
            DatabaseFailure: it could not be done within `timeout` seconds.
        """
        work = DatabaseCall(function, care=care, wakeups=wakeups)
        self.submit(work)
        try:
            async with asyncio.timeout(timeout):
                return await work.future
        except TimeoutError:
            # It may be under way in the thread.
            raise DatabaseFailure(f"not done within {timeout:g} s: {self.trouble}", is_certain=False) from None

    def post(
        self, function: Callable[[sqlite3.Connection], T], *, care: Durability, wakeups: tuple[Kind, ...] = ()
    ) -> asyncio.Future[T]:
        """As `call`, without a deadline, and the future may be ignored."""
        work = DatabaseCall(function, care=care, wakeups=wakeups)
        work.future.add_done_callback(_look_at)
        self.submit(work)
        return work.future

    async def wait_idle(self) -> None:
        """Return once nothing is left to be done."""
        await self._idle.wait()

    async def aclose(self, *, within: float) -> None:
        """Wait for what was submitted, `within` seconds at the most, and stop the thread."""
        try:
            async with asyncio.timeout(within):
                await self.wait_idle()
        except TimeoutError:
            pass
        self._is_closed = True
        if self._is_shared and (others := _shared.get(asyncio.get_running_loop(), {})).get(self.path) is self:
            del others[self.path]
        self._give_up.set()
        self._inbox.put(None)
        if self._thread is None:
            return
        try:
            async with asyncio.timeout(_LAST_BREATH):
                await self._stopped.wait()
        except TimeoutError:
            return
        self._thread.join()

    def _hand_over(self) -> None:
        self._is_scheduled = False
        if self._is_busy:
            return
        if not self._waiting:
            self._idle.set()
            return
        works = self._next_batch()
        self._is_busy = True
        if self._is_closed:
            error = DatabaseFailure(f"{self.path} was closed")
            asyncio.get_running_loop().call_soon(self._finish, works, [error] * len(works))
            return
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(
                target=self._serve, args=(loop,), name=f"taskmq {self._name}", daemon=True
            )
            self._thread.start()
            if self._is_shared:
                _shared.setdefault(loop, {}).setdefault(self.path, self)
        self._inbox.put(works)

    def _next_batch(self) -> list[Work]:
        works: list[Work] = []
        while self._waiting and len(works) < _BATCH:
            works.append(work := self._waiting.popleft())
            work.seal()
            if work.is_heavy:
                break
        return works

    def _finish(self, works: list[Work], errors: Sequence[Exception | None]) -> None:
        self._is_busy = False
        self._is_scheduled = True
        for work, error in zip(works, errors, strict=True):
            try:
                work.end(error)
            except Exception as mistake:  # noqa: BLE001 - must not keep the others from their ends
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"{work!r} could not be ended", "exception": mistake}
                )
        self._gather(_TURNS, 0, -1)

    def _gather(self, turns: int, quiet: int, arrived: int) -> None:
        """Hand over once some turns of the loop have brought nothing more."""
        quiet = 0 if arrived != self._arrived else quiet + 1
        if turns and quiet < _QUIET:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1, quiet, self._arrived)
        else:
            self._hand_over()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (works := self._inbox.get()) is not None:
                errors = self._session.transact(works)
                self._ring(works, errors)
                loop.call_soon_threadsafe(self._finish, works, errors)
        except RuntimeError:
            # The loop was closed without closing this object: no waiter is left.
            if not loop.is_closed():
                raise
        finally:
            self._session.close()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stopped.set)

    def _ring(self, works: list[Work], errors: Sequence[Exception | None]) -> None:
        wakeups: set[Kind] = set()
        for work, error in zip(works, errors, strict=True):
            if error is None:
                wakeups.update(work.wakeups)
        for wakeup in wakeups:
            notify(self.root, wakeup)


def _look_at(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
