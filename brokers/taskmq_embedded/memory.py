"""The tables of a file in memory, for one process; calls run immediately in the caller's thread.

For tests, whose clock may be virtual: without a thread, a loop never waits in real time. Objects of a process that
name the same memory share it, on any thread and loop, until the last of them is deleted.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from taskmq_embedded.connection import FileConnection
from taskmq_embedded.file_kind import FileKind, ignore_new_file
from taskmq_embedded.forks import OPENING, new_lock
from taskmq_embedded.thread import FileThread
from taskmq_embedded.work import Care

C = TypeVar("C")
T = TypeVar("T")
S = TypeVar("S")

MEMORY: Final = ":memory:"
"""Prefix of the path of a file in memory; the name follows."""


class MemoryThread(FileThread[C]):
    """A `FileThread` without a thread, on the memory that `path` names."""

    def __init__(
        self, path: Path, kind: FileKind, enter: Callable[[sqlite3.Connection], AbstractContextManager[C]]
    ) -> None:
        self._file = _MemoryConnection(path, kind, enter)
        super().__init__(self._file, name="memory")
        self._was_closed = False

    async def call(self, function: Callable[[C], T], *, care: Care) -> T:
        del care
        return self.ask(function)

    async def add(self, function: Callable[[C, Sequence[S]], list[T]], items: Sequence[S], *, care: Care) -> list[T]:
        del care
        return self.ask(lambda transaction: function(transaction, items))

    async def aclose(self, *, within: float | None = None) -> None:
        del within
        self._was_closed = True

    def ask(self, function: Callable[[C], T]) -> T:
        """Call `function` in a separate transaction and return its answer, without an event loop.

        Raises:
            Exception: what `function` raises, or the kind of file's errors.
        """
        if self._was_closed:
            raise self._file.closed_error()
        return self._file.ask(function)


class _Memory:
    """A connection with its lock, shared within one process."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.process = os.getpid()
        self.connection = sqlite3.connect(
            MEMORY, isolation_level=None, cached_statements=512, check_same_thread=False
        )

        self._is_filled = False

    def __del__(self) -> None:
        self.connection.close()

    def fill(self, kind: FileKind) -> None:
        """Create the tables unless they exist."""
        if not self._is_filled:
            # Copied from a template: tests create very many files, and creation would dominate their time.
            self.connection.deserialize(_new_tables(replace(kind, fill=ignore_new_file)))
            self.connection.execute("PRAGMA journal_mode = MEMORY")
            kind.fill(self.connection)
            self._is_filled = True


@cache
def _new_tables(kind: FileKind) -> bytes:
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as connection:
        kind.create(connection)
        return connection.serialize()


_memories: WeakValueDictionary[tuple[str, Path], _Memory] = WeakValueDictionary()


class _MemoryConnection(FileConnection[C]):
    """A `FileConnection` that shares its connection."""

    def __init__(
        self, path: Path, kind: FileKind, enter: Callable[[sqlite3.Connection], AbstractContextManager[C]]
    ) -> None:
        with OPENING:
            self._memory = _memories.get((kind.what, path)) or _memories.setdefault((kind.what, path), _Memory())
        super().__init__(path, kind, enter, lock=self._memory.lock)

    def ask(self, function: Callable[[C], T]) -> T:
        """Call `function` in a separate transaction and return its answer."""
        work = _ImmediateCall(function)
        with self._lock:
            self._commit([work])
        return work.answer[0]

    def close(self) -> None:
        """Do nothing: other objects share the connection."""

    def _connect(self) -> sqlite3.Connection:
        if self._memory.process != os.getpid():
            raise OSError("the path is in the memory of another process: name a file")
        if self._connection is None:
            self._memory.fill(self.kind)
            self._connection = self._memory.connection
        return self._connection


class _ImmediateCall(Generic[C, T]):
    """A work item that runs in its caller's thread."""

    care = Care.LOOSE
    wakeups: Sequence[str] = ()

    def __init__(self, function: Callable[[C], T]) -> None:
        self._function = function
        self.answer: list[T] = []

    def seal(self) -> None:
        """Do nothing: the work item never changes."""

    def run(self, transaction: C, /) -> None:
        self.answer = [self._function(transaction)]

    def end(self, error: Exception | None) -> None:
        """Do nothing: the caller got the answer or the error directly."""
