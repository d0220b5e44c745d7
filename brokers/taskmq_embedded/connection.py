"""The connection of one thread: opened on first use, with retries while the file is locked."""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Generic, Literal, TypeGuard, TypeVar

from taskmq.model.backoff import Backoff
from taskmq_embedded.file_kind import FileKind, open_file
from taskmq_embedded.forks import new_lock
from taskmq_embedded.place import inode_of
from taskmq_embedded.work import Call, Care, SetCall, Work

C = TypeVar("C")

Synchronous = Literal["FULL", "NORMAL"]
"""Durability of a commit: `FULL` survives a power failure; `NORMAL` survives the death of the process only."""

_TURN: Final = 0.02
# One set of this many items takes about 10 ms.
_ITEMS: Final = 500
# About 10 ms of a statement: the interval at which it checks, under the GIL, whether its caller still waits.
_STEPS: Final = 500_000
_FIRST_PAUSE: Final = 0.0003
# As long as the gap between two turns, so that a retry cannot miss it.
_LONGEST_PAUSE: Final = 0.001
_GAP: Final = 0.001
# PROTOCOL: so many connections compete for the file that SQLite gave up on taking turns.
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
# FULL: the disk may have room for smaller work items. INTERRUPT: one read was interrupted since its caller left.
_OF_ONE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT)
# Errors that the work item itself causes: the connection stays usable.
_REFUSALS: Final = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    # A number or a text that a column cannot store.
    OverflowError,
    UnicodeEncodeError,
)
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "there is no room left: free some disk space, or raise max_page_count",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop all processes that use it, copy it, and restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is damaged or not a SQLite database: name another path, or restore a backup",
    sqlite3.SQLITE_READONLY: "this user cannot write the file or its directory: check the permissions",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check the directory and its permissions",
    sqlite3.SQLITE_PERM: "the file cannot be opened: check the directory and its permissions",
    sqlite3.SQLITE_IOERR: "the disk failed: see the system's log",
}


class FileConnection(Generic[C]):
    """The only user of its connection, in one thread.

    Args:
        enter: opens the context whose value the work items receive; an uncommitted transaction leaves it by an error.
        patience: seconds to retry while others lock the file; None: until `give_up`.
        synchronous: durability of `DURABLE` transactions.
        turn: seconds after which a transaction accepts no more work items.
        lock: held while SQLite is called, by all users of the connection; default: a new one.

    Attributes:
        is_waiting: whether it is waiting for others to unlock the file.
    """

    def __init__(
        self,
        path: Path,
        kind: FileKind,
        enter: Callable[[sqlite3.Connection], AbstractContextManager[C]],
        *,
        patience: float | None = None,
        synchronous: Synchronous = "FULL",
        turn: float = _TURN,
        lock: "threading.RLock | None" = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.is_waiting = False
        self._enter = enter
        self._patience = patience
        self._turn = turn
        self._synchronous: Synchronous = synchronous
        self._gives_up = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._present: str = ""
        self._inode: tuple[int, int] | None = None
        self._begun = 0
        self._is_committing = False
        self._lock = lock or new_lock()

    def transact(self, works: Sequence[Work[C]]) -> list[Exception | None]:
        """Run as many of the work items as fit into a turn in one transaction; return their errors, in order.

        If one work item fails, each runs in its own transaction. If the file fails, all work items have that error.
        """
        try:
            return [None] * self._commit(works)
        except Exception as error:  # noqa: BLE001 - an error of a work item is returned to its caller
            begun = works[: self._begun]
            if self._is_file_failure(error):
                return [error] * len(works)
            if len(begun) == 1:
                return [error]
        return [self._commit_alone(work) for work in begun]

    def pause(self) -> None:
        """Leave a gap after a full turn, in which other processes find the file unlocked."""
        self._gives_up.wait(_GAP)

    def give_up(self) -> None:
        """Stop retrying while others lock the file; may be called from any thread."""
        self._gives_up.set()

    def close(self) -> None:
        """Close the connection; the next transaction opens another. May be called twice."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def closed_error(self) -> Exception:
        """Return the error for work items that arrive after the close."""
        return self.kind.unavailable(f"the {self.kind.what} {self.path} was closed")

    def _commit_alone(self, work: Work[C]) -> Exception | None:
        try:
            self._commit([work])
        except Exception as error:  # noqa: BLE001 - as in `transact`
            return error
        return None

    def _commit(self, works: Sequence[Work[C]]) -> int:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        deadline = None if self._patience is None else time.monotonic() + self._patience
        while True:
            self._begun = 0
            try:
                with self._lock:
                    count = self._run(works)
            except _REFUSALS as error:
                self._roll_back()
                if self.kind.refused is None:
                    raise
                raise self.kind.refused(self._refusal(error)) from None
            except (sqlite3.Error, OSError) as error:
                self._roll_back()
                self.is_waiting = _code(error) in _LOCKED
                is_in_time = deadline is None or time.monotonic() < deadline
                if self.is_waiting and is_in_time and not self._gives_up.wait(backoff.next()):
                    continue
                # Whatever the error is, a new connection is the best thing to try next.
                self.close()
                raise self._failure(error) from error
            except BaseException:
                self._roll_back()
                raise
            self.is_waiting = False
            return count

    def _run(self, works: Sequence[Work[C]]) -> int:
        self._is_committing = False
        connection = self._connect()
        care = max(work.care for work in works)
        if care is not Care.READ:
            self._synchronize("NORMAL" if care is Care.LOOSE else self._synchronous, connection)
        connection.execute("BEGIN" if care is Care.READ else "BEGIN IMMEDIATE")
        with self._enter(connection) as transaction:
            count = self._run_turn(works, transaction, connection)
            self._is_committing = True
            connection.execute("COMMIT")
        return count

    def _run_turn(self, works: Sequence[Work[C]], transaction: C, connection: sqlite3.Connection) -> int:
        """Run work items until the turn is over; return their number."""
        is_over = time.monotonic() + self._turn
        done = 0
        while done < len(works):
            work = works[done]
            if isinstance(work, SetCall):
                mates = _find_mates(works, done)
                self._begun = done = done + len(mates)
                mates[0].run_with(mates, transaction)
            else:
                self._begun = done = done + 1
                _run_one(work, transaction, connection)
            if time.monotonic() > is_over:
                break
        return done

    def _synchronize(self, wanted: Synchronous, connection: sqlite3.Connection) -> None:
        if wanted != self._present:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._present = wanted

    def _connect(self) -> sqlite3.Connection:
        if self._inode is not None and inode_of(self.path) != self._inode:
            # Its committed data is gone. Fail until a restart, instead of starting an empty file in its index.
            raise FileNotFoundError("the file was removed or replaced while it was in use: restart what uses it")
        if self._connection is None:
            self._connection = open_file(self.path, self.kind)
            self._present = ""
            self._inode = inode_of(self.path)
        return self._connection

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            with self._lock:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def _refusal(self, error: Exception) -> str:
        # The error of an unencodable text includes the text.
        why = type(error).__name__ if isinstance(error, UnicodeEncodeError) else f"{type(error).__name__}: {error}"
        return f"the {self.kind.what} {self.path} rejected a statement ({why}); nothing was changed"

    def _failure(self, error: Exception) -> Exception:
        code = _code(error)
        if code in _LOCKED and self._patience is not None:
            remedy = f"another process has locked the file for {self._patience:g} s: find it (lsof) and stop it"
        else:
            remedy = _REMEDIES.get(code, "") if code is not None else ""
        # If the sync of a commit fails, only the next recovery shows whether it took effect.
        is_certain = not (self._is_committing and code == sqlite3.SQLITE_IOERR)
        text = f"the {self.kind.what} {self.path}: {error}{remedy and f'; {remedy}'}"
        return self.kind.unavailable(text, is_certain=is_certain)

    def _is_file_failure(self, error: Exception) -> bool:
        """Whether the file failed, as opposed to one of the work items."""
        cause = error.__cause__
        if not self._begun:
            return True
        return isinstance(cause, (sqlite3.Error, OSError)) and _code(cause) not in _OF_ONE


def _run_one(work: Work[C], transaction: C, connection: sqlite3.Connection) -> None:
    if work.care is not Care.READ or not isinstance(work, Call):
        work.run(transaction)
        return
    connection.set_progress_handler(work.is_left, _STEPS)
    try:
        work.run(transaction)
    finally:
        connection.set_progress_handler(None, 0)


def _find_mates(works: Sequence[Work[C]], first: int) -> list[SetCall[C]]:
    """Return the call at `first` and those after it with the same function, up to some hundred items."""
    mates: list[SetCall[C]] = []
    count = 0
    for index in range(first, len(works)):
        work = works[index]
        if not _is_set(work) or (mates and work.function is not mates[0].function):
            break
        count += len(work.items)
        if mates and count > _ITEMS:
            break
        mates.append(work)
    return mates


def _is_set(work: Work[C]) -> TypeGuard[SetCall[C]]:
    return isinstance(work, SetCall)


def _code(error: BaseException) -> int | None:
    return error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.Error) and _has_code(error) else None


def _has_code(error: sqlite3.Error) -> bool:
    # Errors raised by Python's own module have no code.
    return hasattr(error, "sqlite_errorcode")
