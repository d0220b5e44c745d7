"""The thread that uses a file.

Work items collect on the event loop while the thread is busy, and are passed on together. One batch is under way at a
time; later work items form the next one. Its answers arrive transaction by transaction.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from taskmq_embedded.connection import FileConnection
from taskmq_embedded.work import Call, Care, SetCall, Work

C = TypeVar("C")
T = TypeVar("T")
S = TypeVar("S")

_BATCH: Final = 500
# A caller that sees its commit often submits more. Those work items share the next transaction, as long as each turn
# of the loop brings some.
_TURNS: Final = 64
_QUIET: Final = 2
_LAST_BREATH: Final = 5.0


def _ignore_wakeup(wakeup: str) -> None:
    del wakeup


class FileThread(Generic[C]):
    """A thread with its own connection, used from one event loop. It starts with the first work.

    Args:
        ring: called in the thread after each commit, with each wakeup of its work items.
    """

    def __init__(
        self, connection: FileConnection[C], *, name: str, ring: Callable[[str], None] = _ignore_wakeup
    ) -> None:
        self._ring = ring
        self._connection = connection
        self._name = name
        self._waiting: deque[Work[C]] = deque()
        self._inbox: queue.SimpleQueue[list[Work[C]] | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_scheduled = False
        self._arrived = 0
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str:
        """The likely reason for a long wait."""
        if self._connection.is_waiting:
            return f"{self._connection.path} is locked by another process"
        return f"{self._connection.path} is busy"

    def submit(self, work: Work[C]) -> None:
        """Run `work` in one of the next transactions, after all work items submitted before."""
        self._waiting.append(work)
        self._arrived += 1
        self._idle.clear()
        if not self._is_busy and not self._is_scheduled:
            # At the end of this turn of the loop, together with the other work items of the turn.
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._pass_on)

    def note_arrival(self) -> None:
        """Announce that more work items will come soon, since the caller has just extended a waiting one."""
        self._arrived += 1

    async def call(self, function: Callable[[C], T], *, care: Care) -> T:
        """Call `function` in one of the next transactions and return its answer; a failed transaction calls it again.

        Cancellation interrupts a read; a write that has begun is completed.

        Raises:
            Exception: what `function` raises, or the kind of file's errors.
        """
        call = Call(function, care=care)
        self.submit(call)
        return await call.future

    async def add(self, function: Callable[[C, Sequence[S]], list[T]], items: Sequence[S], *, care: Care) -> list[T]:
        """Call `function` with the items and return its answers, one per item.

        Consecutive calls with the same function are combined into one.
        """
        call = SetCall(function, items, care=care)
        self.submit(call)
        return await call.future

    async def wait_idle(self) -> None:
        """Wait until all submitted work items have ended."""
        await self._idle.wait()

    async def aclose(self, *, within: float | None = None) -> None:
        """Wait at most `within` seconds for the submitted work items, then stop the thread. May be called twice."""
        if not self._is_closed:
            try:
                async with asyncio.timeout(within):
                    await self.wait_idle()
            except TimeoutError:
                pass
            self._is_closed = True
            self._connection.give_up()
            self._inbox.put(None)
        if self._thread is None:
            return
        try:
            async with asyncio.timeout(_LAST_BREATH):
                await self._stopped.wait()
        except TimeoutError:
            return
        self._thread.join()

    def _pass_on(self) -> None:
        self._is_scheduled = False
        if self._is_busy:
            return
        if not self._waiting:
            self._idle.set()
            return
        works = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
        for work in works:
            work.seal()
        self._is_busy = True
        loop = asyncio.get_running_loop()
        if self._is_closed:
            loop.call_soon(self._finish, works, [self._connection.closed_error()] * len(works))
            return
        if self._thread is None:
            self._start(loop)
        self._inbox.put(works)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = threading.Thread(target=self._serve, args=(loop,), name=f"taskmq {self._name}", daemon=True)
        self._thread.start()

    def _finish(
        self, works: Sequence[Work[C]], errors: Sequence[Exception | None], *, has_more: bool = False
    ) -> None:
        for work, error in zip(works, errors, strict=True):
            try:
                work.end(error)
            except Exception as mistake:  # noqa: BLE001 - the other work items must still end
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"ending {work!r} failed", "exception": mistake}
                )
        if not has_more:
            self._is_busy = False
            self._is_scheduled = True
            self._gather(_TURNS, 0, -1)

    def _gather(self, turns: int, quiet: int, arrived: int) -> None:
        """Pass the work items on once some turns of the loop have brought no more."""
        quiet = 0 if arrived != self._arrived else quiet + 1
        if turns and quiet < _QUIET:
            asyncio.get_running_loop().call_soon(self._gather, turns - 1, quiet, self._arrived)
        else:
            self._pass_on()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (works := self._inbox.get()) is not None:
                while works:
                    errors = self._connection.transact(works)
                    ended, works = works[: len(errors)], works[len(errors) :]
                    for wakeup in _wakeups(ended, errors):
                        self._ring(wakeup)
                    loop.call_soon_threadsafe(partial(self._finish, ended, errors, has_more=bool(works)))
                    if works:
                        self._connection.pause()
        except RuntimeError:
            # The loop was closed before this object: no caller waits any more.
            if not loop.is_closed():
                raise
        finally:
            self._connection.close()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stopped.set)


def _wakeups(works: Sequence[Work[C]], errors: Sequence[Exception | None]) -> set[str]:
    found: set[str] = set()
    for work, error in zip(works, errors, strict=True):
        if error is None:
            found.update(work.wakeups)
    return found
