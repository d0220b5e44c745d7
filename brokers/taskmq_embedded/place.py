"""Paths of files: created private to their owner, and checked for replacement later."""

import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path


def connect(path: Path) -> sqlite3.Connection:
    """Connect to the file, whatever version its tables have; create it if it does not exist.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    _make_file(path)
    # The caller handles BUSY: SQLite's own handler sleeps up to 100 ms at a time.
    return sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=512, check_same_thread=False)


def make_private_folder(folder: Path) -> None:
    """Create the folder, private to its owner; its parents get the process's default mode."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without it, a power failure could lose the folder with all its files.
    fd = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def inode_of(path: Path) -> tuple[int, int] | None:
    """Identify the file at this path; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - runs before each transaction: no Path objects
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _make_file(path: Path) -> None:
    """Create an empty file, private to its owner; SQLite gives its log and index the same mode."""
    if path.exists():
        return
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"folder {folder} does not exist: create it, or name another path")
    # Linked into place: closing a descriptor of the file itself would drop the locks of other connections.
    draft = folder / f".{path.name}-{secrets.token_hex(8)}"
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
