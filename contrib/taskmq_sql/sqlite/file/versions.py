"""The version of a file's tables: looked at, and brought up to this code's, beside all connections that use it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from taskmq.errors import StoreMismatch, StoreUnavailable
from taskmq_embedded.file_kind import version_of
from taskmq_embedded.place import connect
from taskmq_sql.sqlite.file.schema import JOB_STORE

__all__ = ["upgrade_file", "version_of_file"]

T = TypeVar("T")

_PATIENCE_MS: Final = 10_000


def version_of_file(path: Path) -> int:
    """The version of the tables; 0 where there are none.

    Raises:
        StoreUnavailable: the file cannot be read.
    """
    return _on(path, version_of) if path.exists() else 0


def upgrade_file(path: Path) -> int:
    """Bring the tables up to this taskmq's version, or make them; the version before.

    Safe when several processes do so at once.

    Raises:
        StoreMismatch: the file is no job store, or of a newer version.
        StoreUnavailable: the file cannot be written.
    """
    return _on(path, JOB_STORE.upgrade)


def _on(path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        connection = connect(path)
        try:
            connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            return work(connection)
        finally:
            connection.close()
    except StoreMismatch as error:
        raise StoreMismatch(f"{path} {error}") from None
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"the job store {path}: {error}") from error
