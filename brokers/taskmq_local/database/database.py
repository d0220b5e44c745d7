"""The file of a broker or a state, used by a thread of its own: publishes, acknowledgements, leases and results."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from taskmq_embedded.connection import FileConnection
from taskmq_embedded.thread import FileThread
from taskmq_embedded.work import Call, Care, FileFailure
from taskmq_local.database.schema import QUEUE_FILE
from taskmq_local.database.wakeup import Kind, notify

__all__ = ["Database"]

T = TypeVar("T")

_PATIENCE: Final = 30.0

_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, Database]]" = WeakKeyDictionary()


class Database(FileThread[sqlite3.Connection]):
    """The thread and the file of one broker or state object, used from one event loop.

    Args:
        is_shared: others on the loop may write to the same file through this one while it is open, see `partner`.
    """

    def __init__(self, path: Path, *, name: str, is_shared: bool = False) -> None:
        self.path = path
        self.root = path.parent
        self._is_shared = is_shared
        # With no end of its patience: each caller has one.
        connection = FileConnection(path, QUEUE_FILE, nullcontext[sqlite3.Connection])
        super().__init__(connection, name=name, ring=partial(notify, self.root))

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
        care: Care,
        wakeups: tuple[Kind, ...] = (),
        timeout: float = _PATIENCE,
    ) -> T:
        """What `function` returns, called with the connection in a transaction.

        Raises:
            FileFailure: it could not be done within `timeout` seconds.
        """
        work = Call(function, care=care, wakeups=wakeups)
        self.submit(work)
        try:
            async with asyncio.timeout(timeout):
                return await work.future
        except TimeoutError:
            # It may be under way in the thread.
            raise FileFailure(f"not done within {timeout:g} s: {self.trouble}", is_certain=False) from None

    def post(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> asyncio.Future[T]:
        """As `call`, without a deadline, and the future may be ignored."""
        work = Call(function, care=care, wakeups=wakeups)
        work.future.add_done_callback(_look_at)
        self.submit(work)
        return work.future

    async def aclose(self, *, within: float | None = None) -> None:
        if self._is_shared and (others := _shared.get(asyncio.get_running_loop(), {})).get(self.path) is self:
            del others[self.path]
        await super().aclose(within=within)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        super()._start(loop)
        if self._is_shared:
            _shared.setdefault(loop, {}).setdefault(self.path, self)


def _look_at(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
