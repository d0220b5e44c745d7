"""Submissions and lookups in a caller's own transaction, which the caller commits."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from taskmq.errors import StoreMismatch, StoreUnavailable, UnsupportedFeature
from taskmq.model.clock import Clock
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction

T = TypeVar("T")


class FileCallers:
    """Callers' transactions on the store's file.

    A connection is one of `sqlite3`, or a SQLAlchemy connection or session on one, to that file. Both methods raise
    `UnsupportedFeature` for any other, and `StoreUnavailable` if the file is locked or cannot be written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def write(self, connection: Any, write: Callable[[Transaction], T]) -> T:
        """Write in the transaction of `connection`; begin one if none is open."""

        def work(transaction: Transaction) -> T:
            if not transaction.connection.in_transaction:
                transaction.connection.execute("BEGIN IMMEDIATE")
            return write(transaction)

        return self.read(connection, work)

    def read(self, connection: Any, read: Callable[[Transaction], T]) -> T:
        """Read in the transaction of `connection`; never begin one."""
        raw = _raw(connection)
        _check_file(raw, self._path)
        if reason := JOB_STORE.difference(raw):
            raise StoreMismatch(f"{self._path} {reason}")
        try:
            return read(Transaction(raw, Names(), self._clock.now_ms()))
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"job store {self._path}: {error}: roll back and retry") from error


def _raw(connection: Any) -> sqlite3.Connection:
    if isinstance(connection, sqlite3.Connection):
        return connection
    # A SQLAlchemy session wraps a connection, which wraps the pool's, which wraps the driver's. Asynchronous ones
    # belong to another thread.
    is_async = hasattr(connection, "sync_session") or hasattr(connection, "sync_connection")
    has_connection = not is_async and callable(getattr(connection, "connection", None))
    found = connection.connection() if has_connection else connection
    found = getattr(getattr(found, "connection", None), "driver_connection", None)
    if isinstance(found, sqlite3.Connection):
        return found
    raise UnsupportedFeature(
        f"connection={type(connection).__name__} is not supported: pass a connection of sqlite3, or a synchronous "
        "SQLAlchemy connection or session on one, to the job store's file"
    )


def _check_file(connection: sqlite3.Connection, path: Path) -> None:
    for _, name, file in connection.execute("PRAGMA database_list").fetchall():
        if name == "main" and file and Path(file).resolve() == path.resolve():
            return
    raise UnsupportedFeature(f"connection= is a connection to another file than the job store's, {path}")
