"""The connection of one thread: opened on first use, transactions that are retried while the file is locked."""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal, TypeVar

from taskmq.errors import StoreMismatch, StoreRefused, StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq_sql.sqlite.file.names import Names
from taskmq_sql.sqlite.file.schema import create, mismatch

__all__ = ["Care", "FileConnection", "Synchronous", "Transaction", "open_raw"]

T = TypeVar("T")

Synchronous = Literal["FULL", "NORMAL"]
"""When a commit returns: `FULL`: on the disk; `NORMAL`: it survives the process, and not a power failure."""


class Care(IntEnum):
    """What a transaction needs."""

    READ = 0
    LOOSE = 1
    """As `NORMAL`, whatever the store is set to."""
    DURABLE = 2


_FIRST_PAUSE: Final = 0.0003
_LONGEST_PAUSE: Final = 0.02
# The second: so many want the file at once that sqlite gave up on taking turns.
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
# What a request brings upon itself: the connection is as good as before.
_REQUEST_ERRORS: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    # A number, or a text, that has no form in a column.
    OverflowError,
    UnicodeEncodeError,
)
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "there is no room left: make room on the disk, or raise max_page_count",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop all that use it, keep a copy, and restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database, or damaged: name another path, or restore a backup",
    sqlite3.SQLITE_READONLY: "the file or its directory cannot be written by this user: see to its permissions",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: see to the directory and its permissions",
    sqlite3.SQLITE_PERM: "the file cannot be opened: see to the directory and its permissions",
    sqlite3.SQLITE_IOERR: "the disk has failed: see to the system's log",
}


class Transaction:
    """What a request has while it runs: a connection in a transaction, and the time.

    Attributes:
        now: ms since the epoch, the same for the whole transaction.
    """

    def __init__(self, connection: sqlite3.Connection, names: Names, now: int) -> None:
        self.connection = connection
        self.names = names
        self.now = now

    def check(self) -> None:
        """See whether the tables are those that this adapter works with.

        Raises:
            StoreMismatch: they are not.
        """
        if reason := mismatch(self.connection):
            raise StoreMismatch(f"the job store {reason}")


class FileConnection:
    """The only user of its connection, in one thread.

    Args:
        patience: seconds for which a file that others have locked is tried again.
        give_up: set when it is not to be tried again.
    """

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        synchronous: Synchronous,
        patience: float,
        give_up: threading.Event,
    ) -> None:
        self.path = path
        self._now_ms = now_ms
        self._synchronous: Synchronous = synchronous
        self._patience = patience
        self._give_up = give_up
        self._connection: sqlite3.Connection | None = None
        self._names = Names()
        self._present: Synchronous = synchronous
        self._inode: tuple[int, int] | None = None
        self._is_committing = False

    def transact(self, care: Care, work: Callable[[Transaction], T]) -> T:
        """What `work` returns, called in its own transaction; again, from the start, while the file is locked.

        Raises:
            StoreUnavailable: it could not be done.
            StoreMismatch: the file's tables are not those that this taskmq works with.
            StoreRefused: a statement or a value of it cannot be.
            Exception: what `work` raises; the transaction is rolled back.
        """
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._run(care, work)
            except _REQUEST_ERRORS as error:
                self._roll_back()
                why = (
                    type(error).__name__
                    if isinstance(error, UnicodeEncodeError)
                    else f"{type(error).__name__}: {error}"
                )
                text = f"the job store {self.path} has refused a statement ({why}); nothing was changed"
                raise StoreRefused(text) from None
            except (sqlite3.Error, OSError) as error:
                self._roll_back()
                is_locked = _code(error) in _LOCKED
                if is_locked and time.monotonic() < deadline and not self._give_up.wait(backoff.next()):
                    continue
                # Whatever it is, a fresh connection is the best that can be tried next time.
                self.close()
                raise self._failure(error) from error
            except BaseException:
                self._roll_back()
                raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._names = Names()
        if connection is not None:
            connection.close()

    def _run(self, care: Care, work: Callable[[Transaction], T]) -> T:
        self._is_committing = False
        connection = self._connect()
        if care is not Care.READ:
            self._synchronize("NORMAL" if care is Care.LOOSE else self._synchronous, connection)
        connection.execute("BEGIN" if care is Care.READ else "BEGIN IMMEDIATE")
        result = work(Transaction(connection, self._names, self._now_ms()))
        self._is_committing = True
        connection.execute("COMMIT")
        self._names.keep()
        return result

    def _synchronize(self, wanted: Synchronous, connection: sqlite3.Connection) -> None:
        if wanted != self._present:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._present = wanted

    def _connect(self) -> sqlite3.Connection:
        if self._inode is not None and _inode(self.path) != self._inode:
            # What was committed to it is gone: say so until a restart, and do not begin an empty one in its place.
            raise FileNotFoundError("the file was removed or replaced while it was in use: restart what uses it")
        if self._connection is None:
            connection = _opened(self.path, self._synchronous)
            try:
                reason = mismatch(connection)
            except BaseException:
                connection.close()
                raise
            if reason:
                connection.close()
                raise StoreMismatch(f"{self.path} {reason}")
            self._connection = connection
            self._present = self._synchronous
            self._inode = _inode(self.path)
        return self._connection

    def _roll_back(self) -> None:
        self._names.drop()
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def _failure(self, error: Exception) -> StoreUnavailable:
        code = _code(error)
        if code in _LOCKED:
            remedy = f"another process has locked the file for {self._patience:g} s: find it (lsof), and end it"
        else:
            remedy = _REMEDIES.get(code, "") if code is not None else ""
        # Whether a commit counts whose sync has failed is known after the next recovery only.
        is_certain = not (self._is_committing and code == sqlite3.SQLITE_IOERR)
        text = f"the job store {self.path}: {error}{remedy and f'; {remedy}'}"
        return StoreUnavailable(text, is_certain=is_certain)


def open_raw(path: Path) -> sqlite3.Connection:
    """Connect to the file, which is made where there is none, of whatever version its tables are.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    _make_file(path)
    # BUSY is handled by the caller: sqlite's own handler sleeps up to 100 ms at a time.
    return sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=512, check_same_thread=False)


def _opened(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    connection = open_raw(path)
    try:
        create(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        # 32 MiB between checkpoints, and as much of a cache: what is written at full speed is read again soon.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA cache_size = -32000")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def _make_file(path: Path) -> None:
    """Make an empty file for its owner alone; SQLite gives its log and index the same rights."""
    if path.exists():
        return
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: make it, or name another path")
    # Linked in place: a descriptor of the file itself that is closed here would drop the locks of other connections.
    draft = folder / f".{path.name}-{secrets.token_hex(8)}"
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _code(error: Exception) -> int | None:
    return error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.Error) and _has_code(error) else None


def _has_code(error: sqlite3.Error) -> bool:
    # Those that Python's own module raises have none.
    return hasattr(error, "sqlite_errorcode")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
