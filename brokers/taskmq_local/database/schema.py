"""How `taskmq.db` is opened; its tables are in `schema_steps`.

A file of an older version is upgraded by the first process that opens it; one of a newer version, or of a development
version, is refused.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from taskmq_local.database.schema_steps import BASELINE, FIRST_VERSION, STEPS

__all__ = ["SCHEMA_VERSION", "SchemaMismatch", "make_private_folder", "open_connection"]

SCHEMA_VERSION: Final = FIRST_VERSION + len(STEPS)

_PRAGMAS: Final = (
    "journal_mode = WAL",
    # A commit is on the disk when it returns: confirmed means durable, also at power loss.
    "synchronous = FULL",
    # 16 MiB between checkpoints, a quarter as often as by default: bulk publishing gains about a fifth.
    "wal_autocheckpoint = 4000",
    "journal_size_limit = 67108864",
    "cache_size = -16000",
    "temp_store = MEMORY",
)
_PAUSE = 0.005


class SchemaMismatch(Exception):
    """The file was written by a newer taskmq, or by a development version."""


def open_connection(path: Path, *, patience: float, later: Sequence[str] = ()) -> sqlite3.Connection:
    """A connection to `path`, whose directory and tables are made when they are not there.

    Safe when several processes do so at the same time.

    Args:
        later: steps that come after those of this code, for tests of them.

    Raises:
        SchemaMismatch: a newer taskmq wrote the file, or a development version.
        sqlite3.Error: it cannot be opened, or stays locked for `patience` seconds.
        OSError: the directory cannot be made.
    """
    make_private_folder(path.parent)
    _make_file(path)
    give_up = time.monotonic() + patience
    while True:
        # BUSY is handled here and in `database`: sqlite's own handler sleeps up to 100 ms at a time.
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, cached_statements=256, check_same_thread=False
        )
        try:
            _prepare(connection, (*STEPS, *later))
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_PAUSE)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def make_private_folder(directory: Path) -> None:
    """Make the folder for its owner alone, with its parents as this process makes folders."""
    if directory.is_dir():
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Or a power failure could take the directory away with everything in it.
    fd = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_file(path: Path) -> None:
    """Make an empty file for its owner alone; SQLite gives its log and index the same rights."""
    if path.exists():
        return
    # Linked in place: a descriptor of the file itself that is closed here would drop the locks of other connections.
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _prepare(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    newest = FIRST_VERSION + len(steps)
    if _version(connection) == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have been faster, or another version: look again under the lock.
    version = _version(connection)
    if 0 < version < FIRST_VERSION:
        raise SchemaMismatch(
            f"the file has schema {version}, which a development version of taskmq made before the first release, "
            "and which cannot be upgraded: name another directory, or move this one away"
        )
    if version > newest:
        raise SchemaMismatch(f"the file has schema {version}, this taskmq knows up to {newest}: upgrade taskmq")
    if version < newest:
        for step in steps[version - FIRST_VERSION :] if version else (BASELINE, *steps):
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {newest}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as cursor:
        version: int = cursor.fetchone()[0]
    return version
