"""What is done in the database, and how much care each piece needs."""

import asyncio
import sqlite3
from collections.abc import Callable
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from taskmq_local.database.wakeup import Kind

__all__ = ["DatabaseCall", "DatabaseFailure", "Durability", "Work"]

T = TypeVar("T")


class Durability(IntEnum):
    """What a work needs of its transaction."""

    READ = 0
    # Seen by all processes once committed; may be undone by a power failure, never by a kill.
    LOOSE = 1
    DURABLE = 2


class DatabaseFailure(Exception):
    """The file cannot be read or written at the moment.

    Attributes:
        is_certain: nothing of the work was done; otherwise that is not known.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class Work(Protocol):
    """Something to be done in a transaction, together with others."""

    @property
    def care(self) -> Durability:
        """Read when the work has been sealed."""
        ...

    @property
    def wakeups(self) -> tuple[Kind, ...]:
        """Whom to wake; read after the commit."""
        ...

    @property
    def is_heavy(self) -> bool:
        """Nothing else is to be added to its transaction; read when the work has been sealed."""
        ...

    def seal(self) -> None:
        """Called on the loop when the work is handed over: nothing is added any more."""
        ...

    def run(self, connection: sqlite3.Connection) -> None:
        """Called in the thread, inside the transaction; again, from the start, after a rollback."""
        ...

    def end(self, error: Exception | None) -> None:
        """Called on the loop once the transaction is committed, or with why it is not."""
        ...


class DatabaseCall(Generic[T]):
    """A work with a waiter: `function`, called with the connection.

    Attributes:
        future: what it returned, or its error.
    """

    def __init__(
        self, function: Callable[[sqlite3.Connection], T], *, care: Durability, wakeups: tuple[Kind, ...] = ()
    ) -> None:
        self.care = care
        self.wakeups = wakeups
        self.is_heavy = False
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._function = function
        self._result: list[T] = []

    def seal(self) -> None:
        pass

    def run(self, connection: sqlite3.Connection) -> None:
        # The waiter is gone: what was refused by its deadline must not happen afterwards.
        if not self.future.done():
            self._result = [self._function(connection)]

    def end(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._result[0])
