"""A transaction as the store's functions see it, in the thread of the file."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from taskmq.errors import StoreMismatch
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import JOB_STORE


class Transaction:
    """An open transaction: its connection, its names and its time.

    Attributes:
        now: ms since the epoch, the same for the whole transaction.
    """

    def __init__(self, connection: sqlite3.Connection, names: Names, now: int) -> None:
        self.connection = connection
        self.names = names
        self.now = now

    def check(self) -> None:
        """Check that the tables have the version of this adapter.

        Raises:
            StoreMismatch: they have another one.
        """
        if reason := JOB_STORE.difference(self.connection):
            raise StoreMismatch(f"job store {reason}")


def transactions(now_ms: Callable[[], int]) -> Callable[[sqlite3.Connection], AbstractContextManager[Transaction]]:
    """Return a context manager that opens transactions with the time and the connection's cached names."""
    seen: tuple[sqlite3.Connection | None, Names] = (None, Names())

    @contextmanager
    def enter(connection: sqlite3.Connection) -> Generator[Transaction]:
        nonlocal seen
        if seen[0] is not connection:
            seen = (connection, Names())
        names = seen[1]
        try:
            yield Transaction(connection, names, now_ms())
        except BaseException:
            names.drop()
            raise
        names.keep()

    return enter
