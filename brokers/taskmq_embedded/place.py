"""Paths of files: made for their owner alone, and recognized as the same ones later."""

import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path

__all__ = ["connect", "inode_of", "make_private_folder"]


def connect(path: Path) -> sqlite3.Connection:
    """Connect to the file, which is made where there is none, of whatever version its tables are.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    _make_file(path)
    # BUSY is handled by the caller: sqlite's own handler sleeps up to 100 ms at a time.
    return sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=512, check_same_thread=False)


def make_private_folder(folder: Path) -> None:
    """Make the folder for its owner alone, with its parents as this process makes folders."""
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Or a power failure could take the folder away with everything in it.
    fd = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def inode_of(path: Path) -> tuple[int, int] | None:
    """Identify the file at this path; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - runs before each transaction: no Path objects
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


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
