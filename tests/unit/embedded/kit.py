"""A file format for the tests of the engine."""

import sqlite3
from contextlib import nullcontext
from pathlib import Path

from taskmq_embedded.connection import FileConnection
from taskmq_embedded.file_kind import FileKind
from taskmq_embedded.thread import FileThread
from taskmq_embedded.work import FileFailure

NOTES = FileKind(
    what="note file",
    application_id=7,
    first_version=100,
    baseline=("CREATE TABLE note (text TEXT NOT NULL UNIQUE)",),
    steps=(),
    unavailable=FileFailure,
    mismatch=FileFailure,
)


def thread_on(path: Path, *, turn: float = 0.02) -> FileThread[sqlite3.Connection]:
    return FileThread(FileConnection(path, NOTES, nullcontext[sqlite3.Connection], turn=turn), name="test")


def add_note(connection: sqlite3.Connection, text: str) -> None:
    connection.execute("INSERT INTO note VALUES (?)", (text,))


def count_notes(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT count(*) FROM note").fetchone()[0]
    return count
