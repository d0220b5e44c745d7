"""Kinds of files: their tables in their versions."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskmq_embedded.place import connect, make_private_folder

__all__ = ["FileKind", "ignore_new_file", "open_file", "version_of"]

_PRAGMAS: Final = (
    "journal_mode = WAL",
    # 16 to 32 MiB between checkpoints, and as much of a cache: what is written at full speed is read again soon.
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
    "cache_size = -32000",
    "temp_store = MEMORY",
)


def ignore_new_file(connection: sqlite3.Connection) -> None:
    """Put nothing into the tables of a new file."""
    del connection


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """The tables of one kind of file, and the names of its failures.

    Attributes:
        what: what messages call such a file, such as `job store`.
        application_id: tells the file from others of SQLite.
        first_version: that of `baseline`; lower ones are those of development versions, which no code reads.
        baseline: the tables of the first version: statements, separated by semicolons.
        steps: one for each version after the first. A step that was released never changes.
        fill: puts the first rows into the tables of a new file, in the transaction that makes them.
        page_pragmas: what has no effect once there is a page.
        upgrades_itself: a file that is behind is brought up to date when it is opened.
        makes_folder: the folder of a new file is made, too, for its owner alone.
        unavailable: the error for a file that cannot be read or written; takes `is_certain`.
        refused: the error for a statement that cannot be; None where callers have that of sqlite3.
        mismatch: the error for a file of other tables.
    """

    what: str
    application_id: int
    first_version: int
    baseline: tuple[str, ...]
    steps: tuple[str, ...]
    unavailable: Callable[..., Exception]
    mismatch: Callable[[str], Exception]
    refused: Callable[[str], Exception] | None = None
    fill: Callable[[sqlite3.Connection], None] = ignore_new_file
    page_pragmas: tuple[str, ...] = ()
    upgrades_itself: bool = False
    makes_folder: bool = False

    @property
    def version(self) -> int:
        """The version that this taskmq works with."""
        return self.first_version + len(self.steps)

    def create(self, connection: sqlite3.Connection) -> None:
        """Make the tables in a file that is new; nothing where it has any. Safe when several do so at once."""
        if not _is_empty(connection):
            return
        for pragma in self.page_pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have been faster: look again under the lock.
        if _is_empty(connection):
            connection.execute(f"PRAGMA application_id = {self.application_id}")
            _take_steps(connection, (*self.baseline, *self.steps))
            self.fill(connection)
            connection.execute(f"PRAGMA user_version = {self.version}")
        connection.execute("COMMIT")

    def upgrade(self, connection: sqlite3.Connection) -> int:
        """Bring the tables of a file that is behind up to this version, in one transaction; the version before.

        Raises:
            Exception: `mismatch`: the file is of another kind, or of a version that has no way to this one.
        """
        self.create(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = version_of(connection)
            if not self._is_behind(connection) and (reason := self.difference(connection)):
                raise self.mismatch(reason)
            _take_steps(connection, self.steps[version - self.first_version :])
            connection.execute(f"PRAGMA user_version = {self.version}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return version

    def difference(self, connection: sqlite3.Connection) -> str:
        """Say why this taskmq cannot work with the file, and what to do; nothing where it can."""
        version = version_of(connection)
        if not self._is_ours(connection) or not version:
            return f"is a SQLite file, but no {self.what}: name another path"
        if version < self.first_version:
            return (
                f"has the tables of version {version}, which a development version of taskmq made before the first"
                " release, and which cannot be upgraded: name another path, or move the file away with its -wal and"
                " -shm"
            )
        if version < self.version:
            return (
                f"has the tables of version {version}, and this taskmq works with {self.version}:"
                " run `taskmq store upgrade`"
            )
        if version > self.version:
            return (
                f"has the tables of version {version}, and this taskmq works with {self.version}:"
                " install the taskmq that has upgraded it, or a later one"
            )
        return ""

    def prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        """Make a new connection ready for work: tables, and how it writes.

        Raises:
            Exception: `mismatch`: the file has other tables.
        """
        self.create(connection)
        if self.upgrades_itself and self._is_behind(connection):
            self.upgrade(connection)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if reason := self.difference(connection):
            raise self.mismatch(f"{path} {reason}")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("PRAGMA application_id").fetchone()[0] == self.application_id)

    def _is_behind(self, connection: sqlite3.Connection) -> bool:
        return self._is_ours(connection) and self.first_version <= version_of(connection) < self.version


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the file's tables; 0 for a file that is new."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def open_file(path: Path, kind: FileKind) -> sqlite3.Connection:
    """A connection to the file, which is made with its tables where there is none.

    Raises:
        Exception: `kind.mismatch`: the file has other tables.
        sqlite3.Error: it cannot be opened, or is locked.
        OSError: the file or its folder cannot be made.
    """
    if kind.makes_folder:
        make_private_folder(path.parent)
    connection = connect(path)
    try:
        kind.prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _take_steps(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    for step in steps:
        for statement in step.split(";"):
            connection.execute(statement)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0 and not version_of(connection)
