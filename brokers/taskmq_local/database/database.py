"""The file of a broker or a state, used by its own thread: publishes, acknowledgements, leases and results."""

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
from taskmq_local.database.state_database import Kind
from taskmq_local.database.wakeup import notify

T = TypeVar("T")

_PATIENCE: Final = 30.0

_shared: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, Database]]" = WeakKeyDictionary()


class Database(FileThread[sqlite3.Connection]):
    """The thread and the file of one broker or state object, used from one event loop.

    Args:
        is_shared: whether other objects on the loop may write through this one while it is open, see `partner`.
    """

    def __init__(self, path: Path, *, name: str, is_shared: bool = False) -> None:
        self.path = path
        self.root = path.parent
        self._is_shared = is_shared
        # Retries without a limit: each caller has its own deadline.
        connection = FileConnection(path, QUEUE_FILE, nullcontext[sqlite3.Connection])
        super().__init__(connection, name=name, ring=partial(notify, self.root))

    def partner(self) -> "Database":
        """Return the database on this loop through which others may write to the same file, else this one.

        Writes through one database share its transactions and do not wait for each other's locks.
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
        """Call `function` with the connection in a transaction; return its answer.

        Raises:
            FileFailure: it did not finish within `timeout` seconds.
        """
        work = Call(function, care=care, wakeups=wakeups)
        self.submit(work)
        try:
            async with asyncio.timeout(timeout):
                return await work.future
        except TimeoutError:
            # The thread may already be running it.
            raise FileFailure(f"no answer within {timeout:g} s: {self.trouble}", is_certain=False) from None

    def post(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> asyncio.Future[T]:
        """Submit the call without a deadline; its future may be ignored."""
        work = Call(function, care=care, wakeups=wakeups)
        work.future.add_done_callback(_retrieve)
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


def _retrieve(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
