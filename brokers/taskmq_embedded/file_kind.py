"""Kinds of files: their tables by version."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskmq_embedded.place import connect, make_private_folder

_PRAGMAS: Final = (
    "journal_mode = WAL",
    # 16 to 32 MiB between checkpoints, and as much cache: data written at full speed is soon read again.
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
    "cache_size = -32000",
    "temp_store = MEMORY",
)


def ignore_new_file(connection: sqlite3.Connection) -> None:
    """Insert nothing into the tables of a new file."""
    del connection


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """Tables of one kind of file, and its errors.

    Attributes:
        what: name of such a file in messages, such as `job store`.
        application_id: distinguishes the file from other SQLite files.
        first_version: version of `baseline`; lower ones belong to development versions, which no code reads.
        baseline: statements that create the first version, separated by semicolons.
        steps: one per version after the first; released steps never change.
        fill: inserts the first rows of a new file, in the transaction that creates its tables.
        page_pragmas: pragmas that have no effect once a page exists.
        upgrades_itself: whether opening an older file upgrades it.
        makes_folder: whether opening a new file creates its folder, private to its owner.
        unavailable: error for a file that cannot be read or written; accepts `is_certain`.
        refused: error for a rejected statement; None: callers get that of sqlite3.
        mismatch: error for a file with other tables.
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
        """Create the tables in a new file; do nothing if it has any. Several processes may do this at once."""
        if not _is_empty(connection):
            return
        for pragma in self.page_pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have created them first: check again under the lock.
        if _is_empty(connection):
            connection.execute(f"PRAGMA application_id = {self.application_id}")
            _run_steps(connection, (*self.baseline, *self.steps))
            self.fill(connection)
            connection.execute(f"PRAGMA user_version = {self.version}")
        connection.execute("COMMIT")

    def upgrade(self, connection: sqlite3.Connection) -> int:
        """Upgrade an older file's tables to this version, in one transaction; return the version before.

        Raises:
            Exception: `mismatch`: the file is of another kind, or of a version without an upgrade path.
        """
        self.create(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = version_of(connection)
            if not self._is_behind(connection) and (reason := self.difference(connection)):
                raise self.mismatch(reason)
            _run_steps(connection, self.steps[version - self.first_version :])
            connection.execute(f"PRAGMA user_version = {self.version}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return version

    def difference(self, connection: sqlite3.Connection) -> str:
        """Return why this taskmq cannot use the file, and what to do; "" if it can."""
        version = version_of(connection)
        if not self._is_ours(connection) or not version:
            return f"is a SQLite file, but not a {self.what}: name another path"
        if version < self.first_version:
            return (
                f"has the tables of version {version}, which a development version of taskmq made before the first"
                " release; they cannot be upgraded: name another path, or move the file away with its -wal and -shm"
            )
        if version < self.version:
            return (
                f"has the tables of version {version}, but this taskmq works with {self.version}:"
                " run `taskmq store upgrade`"
            )
        if version > self.version:
            return (
                f"has the tables of version {version}, but this taskmq works with {self.version}:"
                " install the version of taskmq that upgraded it, or a later one"
            )
        return ""

    def prepare(self, connection: sqlite3.Connection, path: Path) -> None:
        """Prepare a new connection: check the tables and set the pragmas.

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
    """Return the version of the file's tables; 0 for a new file."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def open_file(path: Path, kind: FileKind) -> sqlite3.Connection:
    """Connect to the file; create it with its tables if it does not exist.

    Raises:
        Exception: `kind.mismatch`: the file has other tables.
        sqlite3.Error: the file cannot be opened, or is locked.
        OSError: the file or its folder cannot be created.
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


def _run_steps(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    for step in steps:
        for statement in step.split(";"):
            connection.execute(statement)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0 and not version_of(connection)
