"""Version of a file's tables: read and upgraded on separate connections."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from taskmq.errors import StoreMismatch, StoreUnavailable
from taskmq_embedded.file_kind import version_of
from taskmq_embedded.place import connect
from taskmq_sql.sqlite.file.schema import JOB_STORE

T = TypeVar("T")

_PATIENCE_MS: Final = 10_000


def version_of_file(path: Path) -> int:
    """Return the version of the tables; 0 if there are none.

    Raises:
        StoreUnavailable: reading the file failed.
    """
    return _on(path, version_of) if path.exists() else 0


def upgrade_file(path: Path) -> int:
    """Create the tables or upgrade them to this taskmq's version; return the version before.

    Several processes may do this at once.

    Raises:
        StoreMismatch: the file is not a job store, or has a newer version.
        StoreUnavailable: writing the file failed.
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
        raise StoreUnavailable(f"job store {path}: {error}") from error
