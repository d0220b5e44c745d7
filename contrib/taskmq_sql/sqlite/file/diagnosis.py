"""Findings about the file: present problems, and warnings of problems to come."""

import shutil
import sqlite3
from pathlib import Path
from typing import Final

from taskmq.contracts.finding import Finding
from taskmq_sql.sqlite.file.schema import SCHEMA_VERSION
from taskmq_sql.sqlite.file.transaction import Transaction

_ABOUT: Final = "store"
_LITTLE: Final = 0.05
_LONG_LOG: Final = 256 * 2**20
_OLDEST: Final = (3, 37)


def diagnose(transaction: Transaction, path: Path) -> list[Finding]:
    """Check the file, the disk and the SQLite library."""
    of_file = [_disk(path), _rights(path), _log(path)] if path.exists() else []
    return [_tables(transaction), _library(), *of_file, _pages(transaction)]


def _tables(transaction: Transaction) -> Finding:
    count: int = transaction.connection.execute("SELECT count(*) FROM job").fetchone()[0]
    return Finding("ok", _ABOUT, f"tables of version {SCHEMA_VERSION}; {count} live job(s)")


def _library() -> Finding:
    if sqlite3.sqlite_version_info < _OLDEST:
        found = f"SQLite {sqlite3.sqlite_version}"
        return Finding("problem", _ABOUT, found, "use a Python with SQLite 3.37 or later")
    return Finding("ok", _ABOUT, f"SQLite {sqlite3.sqlite_version}")


def _disk(path: Path) -> Finding:
    usage = shutil.disk_usage(path.parent)
    found = f"{usage.free // 2**20} of {usage.total // 2**20} MiB free on the file's disk"
    if usage.free < usage.total * _LITTLE:
        return Finding("warning", _ABOUT, found, "free some space: a full disk stops submissions and reports")
    return Finding("ok", _ABOUT, found)


def _rights(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077 and path.parent.stat().st_mode & 0o077:
        found = f"other users of this host may open {path.name} (mode {mode:o}), which has all arguments and results"
        return Finding("warning", _ABOUT, found, f"chmod 600 {path} {path}-wal {path}-shm, if that is not intended")
    return Finding("ok", _ABOUT, "only its owner can open the file")


def _log(path: Path) -> Finding:
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    found = f"the write-ahead log has {size // 2**20} MiB"
    if size > _LONG_LOG:
        remedy = "a transaction that reads for long keeps it from being reused: find and end it"
        return Finding("warning", _ABOUT, found, remedy)
    return Finding("ok", _ABOUT, found)


def size_of_pages(transaction: Transaction) -> int:
    """Return the bytes of all pages of the database."""
    return _pragma(transaction, "page_count") * _pragma(transaction, "page_size")


def _pages(transaction: Transaction) -> Finding:
    free = _pragma(transaction, "freelist_count") * _pragma(transaction, "page_size")
    total = size_of_pages(transaction)
    return Finding("ok", _ABOUT, f"{total // 2**20} MiB, of which {free // 2**20} MiB are free pages")


def _pragma(transaction: Transaction, name: str) -> int:
    number: int = transaction.connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number
