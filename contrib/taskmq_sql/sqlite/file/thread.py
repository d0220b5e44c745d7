"""Threads of a store: one writes, one reads committed data."""

from pathlib import Path
from typing import TypeAlias

from taskmq.model.clock import Clock
from taskmq_embedded.connection import FileConnection, Synchronous
from taskmq_embedded.memory import MEMORY, MemoryThread
from taskmq_embedded.thread import FileThread as EmbeddedThread
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction, transactions

FileThread: TypeAlias = EmbeddedThread[Transaction]


def open_threads(
    path: Path, clock: Clock, *, synchronous: Synchronous, patience: float
) -> tuple[FileThread, FileThread]:
    """Open the writer and the reader; a path in memory has one thread for both."""
    if str(path).startswith(MEMORY):
        memory = MemoryThread(path, JOB_STORE, transactions(clock.now_ms))
        return memory, memory

    def connect() -> FileConnection[Transaction]:
        return FileConnection(path, JOB_STORE, transactions(clock.now_ms), patience=patience, synchronous=synchronous)

    return FileThread(connect(), name="jobs writer"), FileThread(connect(), name="jobs reader")
