"""The thread in which a file is written, and the one in which it is read.

Requests are gathered on the event loop while the thread is busy, and handed over together: what has come while the
last transaction was on the disk is the next one. So the transactions grow with the load by themselves, and none waits
for more to come.
"""

import asyncio
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

from taskmq.errors import StoreUnavailable
from taskmq_sql.sqlite.file.connection import Care, FileConnection, Transaction

__all__ = ["FileThread"]

T = TypeVar("T")
S = TypeVar("S")

_BATCH: Final = 500
_LAST_BREATH: Final = 5.0
# Some 10 ms of a statement: after so many it looks whether its answer is still waited for, which takes the GIL.
_STEPS: Final = 500_000

_OF_ONE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT)

_Work = Callable[[Transaction], Any]
_SetWork = Callable[[Transaction, Sequence[Any]], list[Any]]


class _Request:
    """Something to be done: `work`, called with the transaction, or `set_work` with `items`, if it has any."""

    def __init__(self, care: Care, work: _Work | None = None, set_work: _SetWork | None = None) -> None:
        self.care = care
        self.work = work
        self.set_work = set_work
        self.items: Sequence[Any] = ()
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def is_left(self) -> bool:
        """Whether no caller waits for it any more."""
        return self.future.done()

    def end(self) -> None:
        """Wake the waiter."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class FileThread:
    """A thread with its own connection, used from one event loop. The thread starts with the first request.

    Args:
        connection: makes the connection, which gives up waiting for locks once the event is set.
    """

    def __init__(self, connection: Callable[[threading.Event], FileConnection], *, name: str) -> None:
        self._give_up = threading.Event()
        self._connection = connection(self._give_up)
        self._name = name
        self._waiting: deque[_Request] = deque()
        self._inbox: queue.SimpleQueue[list[_Request] | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_scheduled = False
        self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread | None = None

    async def call(self, work: Callable[[Transaction], T], *, care: Care) -> T:
        """What `work` returns, called in one of the next transactions; again, from the start, where one fails.

        A read that is cancelled is interrupted; a write that has begun is carried out.

        Raises:
            StoreUnavailable: it could not be done.
            StoreMismatch: the file's tables are not those that this taskmq works with.
        """
        request = _Request(care, work)
        self._submit(request)
        result: T = await request.future
        return result

    async def add(
        self, work: Callable[[Transaction, Sequence[S]], list[T]], items: Sequence[S], *, care: Care
    ) -> list[T]:
        """As `call`, with what `work` returns for the items, one for each.

        Requests with the same `work` that follow each other are one call of it.
        """
        request = _Request(care, set_work=work)
        request.items = items
        self._submit(request)
        result: list[T] = await request.future
        return result

    async def aclose(self) -> None:
        """Do what was asked for, and stop. May be called twice."""
        if not self._is_closed:
            await self._idle.wait()
            self._is_closed = True
            self._inbox.put(None)
        if self._thread is None:
            return
        try:
            async with asyncio.timeout(_LAST_BREATH):
                await self._stopped.wait()
        except TimeoutError:
            return
        self._thread.join()

    def _submit(self, request: _Request) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"the job store {self._connection.path} was closed")
        self._waiting.append(request)
        self._idle.clear()
        self._hand_over_soon()

    def _hand_over_soon(self) -> None:
        if not self._is_busy and not self._is_scheduled:
            # At the end of this turn of the loop, with what else comes up in it.
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            self._idle.set()
            return
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._serve, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        count = min(len(self._waiting), _BATCH)
        self._is_busy = True
        self._inbox.put([self._waiting.popleft() for _ in range(count)])

    def _finish(self, requests: Sequence[_Request]) -> None:
        self._is_busy = False
        for request in requests:
            request.end()
        # After those whose answers these are: what they ask for next goes along.
        self._hand_over_soon()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (requests := self._inbox.get()) is not None:
                # The others have no waiter any more.
                self._transact([request for request in requests if not request.is_left()])
                loop.call_soon_threadsafe(self._finish, requests)
        except RuntimeError:
            # The loop was closed without closing the store: no waiter is left.
            if not loop.is_closed():
                raise
        finally:
            self._connection.close()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._stopped.set)

    def _transact(self, requests: Sequence[_Request]) -> None:
        """Run all in one transaction or, where one of them fails, each in its own."""
        if not requests:
            return
        care = max(request.care for request in requests)
        try:
            self._connection.transact(care, lambda transaction: _run(transaction, requests))
        except Exception as error:  # noqa: BLE001 - the border: what a request raises belongs to its sender
            if len(requests) > 1 and _is_of_one(error):
                for request in requests:
                    if not request.is_left():
                        self._transact([request])
                return
            for request in requests:
                request.error = error
        else:
            for request in requests:
                request.error = None


def _run(transaction: Transaction, requests: Sequence[_Request]) -> None:
    for work, group in groupby(requests, key=_set_work):
        if work is None:
            for request in group:
                request.result = _run_one(transaction, request)
        else:
            _run_set(transaction, work, list(group))


def _run_one(transaction: Transaction, request: _Request) -> Any:
    assert request.work is not None
    if request.care is not Care.READ:
        return request.work(transaction)
    transaction.connection.set_progress_handler(request.is_left, _STEPS)
    try:
        return request.work(transaction)
    finally:
        transaction.connection.set_progress_handler(None, 0)


def _run_set(transaction: Transaction, work: _SetWork, requests: Sequence[_Request]) -> None:
    results = iter(work(transaction, [item for request in requests for item in request.items]))
    for request in requests:
        request.result = list(_first(results, len(request.items)))


def _first(results: Iterator[Any], count: int) -> Iterator[Any]:
    return (next(results) for _ in range(count))


def _set_work(request: _Request) -> _SetWork | None:
    return request.set_work


def _is_of_one(error: Exception) -> bool:
    """Whether the others may do without the one that has brought it about.

    The disk may have room for a small one, and one was interrupted as its caller has gone.
    """
    if not isinstance(error, StoreUnavailable):
        return True
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF in _OF_ONE
