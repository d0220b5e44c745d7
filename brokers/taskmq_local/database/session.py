"""The connection of one thread: transactions that are retried while the file is locked, and torn apart on errors."""

import sqlite3
import threading
from pathlib import Path
from typing import Final

from taskmq.model.backoff import Backoff
from taskmq_local.database.schema import SchemaMismatch, open_connection
from taskmq_local.database.work import DatabaseFailure, Durability, Work

__all__ = ["DatabaseSession"]

_FIRST_PAUSE: Final = 0.0003
_LONGEST_PAUSE: Final = 0.02
_OPENING: Final = 5.0

# What a request brings upon itself; its neighbours in the transaction are innocent.
_REQUEST_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
)

# The second: so many want the file at once that sqlite gave up on taking turns.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)


class DatabaseSession:
    """The only user of its connection, in one thread."""

    def __init__(self, path: Path, give_up: threading.Event) -> None:
        self._path = path
        self._give_up = give_up
        self._connection: sqlite3.Connection | None = None
        self._care: Durability = Durability.DURABLE
        self._inode: tuple[int, int] | None = None
        self._is_committing = False
        self.is_waiting = False

    def transact(self, works: list[Work]) -> list[Exception | None]:
        """Run all in one transaction or, when one of them fails, each in its own; the error of each."""
        try:
            self._commit(works)
        except DatabaseFailure as error:
            return [error] * len(works)
        except Exception as error:  # noqa: BLE001 - the border: what a work raises belongs to its sender
            if len(works) == 1:
                return [error]
            return [self.transact([work])[0] for work in works]
        return [None] * len(works)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _commit(self, works: list[Work]) -> None:
        care = max(work.care for work in works)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        while True:
            try:
                self._run(works, care)
            except _REQUEST_ERRORS:
                self._roll_back()
                raise
            except (sqlite3.Error, OSError, SchemaMismatch) as error:
                self._roll_back()
                code = _primary_code(error)
                self.is_waiting = code in _LOCKED
                if self.is_waiting and not self._give_up.wait(backoff.next()):
                    continue
                # The disk is full for all of them together: a small one may fit.
                if code == sqlite3.SQLITE_FULL and len(works) > 1:
                    raise
                # Whatever it is, a fresh connection is the best that can be tried next time.
                self.close()
                # Whether a commit counts whose sync failed is known after the next recovery only.
                is_certain = not self._is_committing or code != sqlite3.SQLITE_IOERR
                raise DatabaseFailure(f"{self._path}: {error}", is_certain=is_certain) from error
            except BaseException:
                self._roll_back()
                raise
            self.is_waiting = False
            return

    def _run(self, works: list[Work], care: Durability) -> None:
        self._is_committing = False
        connection = self._connect()
        if care is not Durability.READ and care is not self._care:
            connection.execute(f"PRAGMA synchronous = {'FULL' if care is Durability.DURABLE else 'NORMAL'}")
            self._care = care
        connection.execute("BEGIN" if care is Durability.READ else "BEGIN IMMEDIATE")
        for work in works:
            work.run(connection)
        self._is_committing = True
        connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        if self._inode is not None and _inode(self._path) != self._inode:
            # What was committed to it is gone, with the locks and wake-ups beside it: say so until a restart.
            raise FileNotFoundError("the file was removed or replaced while it was in use")
        if self._connection is None:
            self._connection = open_connection(self._path, patience=_OPENING)
            self._care = Durability.DURABLE
            self._inode = _inode(self._path)
        return self._connection

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()


def _primary_code(error: Exception) -> int | None:
    return error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.OperationalError) else None


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
