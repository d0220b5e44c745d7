"""Submissions and look-ups in a transaction of the caller's own, which commits them."""

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

__all__ = ["read_in", "submit_in"]

T = TypeVar("T")


def submit_in(connection: Any, jobs: Sequence[NewJob], *, path: Path, now: int) -> list[Submitted]:
    """Keep the jobs in the transaction of `connection`, or begin one with it; what became of each.

    Args:
        connection: a connection of `sqlite3`, or one, or a session, of SQLAlchemy on it, to the store's file.

    Raises:
        UnsupportedFeature: it is another one, or to another file.
        StoreUnavailable: the file is locked, or cannot be written.
    """

    def work(transaction: Transaction) -> list[Submitted]:
        if not transaction.connection.in_transaction:
            transaction.connection.execute("BEGIN IMMEDIATE")
        return submit(transaction, jobs)

    return read_in(connection, work, path=path, now=now)


def read_in(connection: Any, read: Callable[[Transaction], T], *, path: Path, now: int) -> T:
    """Read in the transaction of `connection`, as `submit_in` takes it; begin none.

    Raises:
        UnsupportedFeature, StoreUnavailable: as `submit_in`.
    """
    raw = _raw(connection)
    _check_file(raw, path)
    if reason := JOB_STORE.difference(raw):
        raise StoreMismatch(f"{path} {reason}")
    try:
        return read(Transaction(raw, Names(), now))
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"the job store {path}: {error}: roll back, and try again") from error


def _raw(connection: Any) -> sqlite3.Connection:
    if isinstance(connection, sqlite3.Connection):
        return connection
    # A session of SQLAlchemy has a connection, that one has the pool's, and that one the driver's. An asynchronous
    # one has another thread's.
    is_async = hasattr(connection, "sync_session") or hasattr(connection, "sync_connection")
    has_connection = not is_async and callable(getattr(connection, "connection", None))
    found = connection.connection() if has_connection else connection
    found = getattr(getattr(found, "connection", None), "driver_connection", None)
    if isinstance(found, sqlite3.Connection):
        return found
    raise UnsupportedFeature(
        f"connection={type(connection).__name__}: jobs of a store in a file are submitted in the transaction of a "
        "connection of sqlite3, or of a synchronous connection or session of SQLAlchemy on one"
    )


def _check_file(connection: sqlite3.Connection, path: Path) -> None:
    for _, name, file in connection.execute("PRAGMA database_list").fetchall():
        if name == "main" and file and Path(file).resolve() == path.resolve():
            return
    raise UnsupportedFeature(f"the transaction is one of another file than the job store's, {path}")
