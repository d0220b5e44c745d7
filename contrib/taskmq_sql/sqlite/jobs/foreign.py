"""Submissions and lookups in a caller's own transaction, which the caller commits."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from taskmq.contracts.jobs import NewJob, Submitted
from taskmq.errors import StoreMismatch, StoreUnavailable, UnsupportedFeature
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.submissions import submit

__all__ = ["read_in", "submit_in", "write_in"]

T = TypeVar("T")


def submit_in(connection: Any, jobs: Sequence[NewJob], *, path: Path, now: int) -> list[Submitted]:
    """Store the jobs in the transaction of `connection`; begin one if none is open.

    Args:
        connection: a connection of `sqlite3`, or a SQLAlchemy connection or session on one, to the store's file.

    Raises:
        UnsupportedFeature: the connection is of another kind, or to another file.
        StoreUnavailable: the file is locked, or writing it failed.
    """
    return write_in(connection, lambda transaction: submit(transaction, jobs), path=path, now=now)


def write_in(connection: Any, write: Callable[[Transaction], T], *, path: Path, now: int) -> T:
    """Write in the transaction of `connection`; begin one if none is open.

    Raises:
        UnsupportedFeature, StoreUnavailable: as in `submit_in`.
    """

    def work(transaction: Transaction) -> T:
        if not transaction.connection.in_transaction:
            transaction.connection.execute("BEGIN IMMEDIATE")
        return write(transaction)

    return read_in(connection, work, path=path, now=now)


def read_in(connection: Any, read: Callable[[Transaction], T], *, path: Path, now: int) -> T:
    """Read in the transaction of `connection`; never begin one.

    Raises:
        UnsupportedFeature, StoreUnavailable: as in `submit_in`.
    """
    raw = _raw(connection)
    _check_file(raw, path)
    if reason := JOB_STORE.difference(raw):
        raise StoreMismatch(f"{path} {reason}")
    try:
        return read(Transaction(raw, Names(), now))
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"job store {path}: {error}: roll back and retry") from error


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
