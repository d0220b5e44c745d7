"""Journal writer of an executor process: its end of the pipe to the worker, which is connected to the state.

A separate thread writes, from the first report or save of a task on: an exception raised from outside in the main
thread (a soft timeout) must not leave half a frame in the pipe. A fork has neither that thread nor a pipe of its own:
its reports are dropped, and its saves raise.
"""

import itertools
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from taskmq.contracts.stores import BegunRun
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StateUnavailable, UnsupportedFeature
from taskmq.executors.frames import DroppedLines, LoggedLine
from taskmq.executors.journal_pipe import BeginRun, News, Reply, SaveValue
from taskmq.run.journal import RunJournal

_PERIOD: Final = 0.5

_Written = BeginRun | SaveValue | LoggedLine | DroppedLines


class ChildJournalWriter:
    """The journals of one process, which runs one task at a time. Its coroutines block.

    Args:
        send: writes a whole frame to the worker.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._process = os.getpid()
        self._asking = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[_Written | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._journal: RunJournal | None = None

    def open(self, journal: RunJournal) -> None:
        """Accept reports of this journal, whose run starts, and of no other."""
        self._journal = journal

    def finish(self) -> None:
        """Send the last news of the run; later news is ignored."""
        if self._thread is not None:
            written = threading.Event()
            self._outbox.put(written)
            written.wait()
        self._journal = None

    def hear(self, reply: Reply | None) -> None:
        """Handle a reply of the worker; None once it is gone. Called in another thread."""
        self._replies.put(reply)

    def tell(self, content: LoggedLine | DroppedLines) -> None:
        """Queue a line of the run for writing, in order."""
        self._write(content)

    def mark_changed(self, journal: RunJournal) -> None:
        if journal is self._journal and os.getpid() == self._process:
            self._write(None)

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    async def begin(self, journal: RunJournal) -> BegunRun:
        return self.begin_blocking(journal)

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        self.save_blocking(journal, name, value)

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        self._refuse_forks()
        with self._asking:
            if journal.run is None:
                reply = self._ask(journal, BeginRun(next(self._numbers)))
                journal.run = BegunRun(reply.token, reply.values)
            return journal.run

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        self._refuse_forks()
        with self._asking:
            self._ask(journal, SaveValue(next(self._numbers), name, value))

    def _refuse_forks(self) -> None:
        """Raise in a fork before a lock is acquired, which a thread may have held at the fork."""
        if os.getpid() != self._process:
            raise UnsupportedFeature(
                "a fork of the task's process cannot save: save in the process in which the task was started, or "
                "use multiprocessing's method `spawn` and return the values"
            )

    def _ask(self, journal: RunJournal, question: BeginRun | SaveValue) -> Reply:
        if journal is not self._journal:
            raise StateUnavailable("the task has ended: code that it left running cannot save")
        self._write(question)
        # A reply to an earlier question, whose wait was interrupted, has no reader.
        while (reply := self._replies.get()) is not None and reply.number != question.number:
            pass
        if reply is None:
            self._replies.put(None)
            raise StateUnavailable("the worker has ended", is_certain=False)
        if reply.error:
            raise pickle.loads(reply.error)  # noqa: S301 - written by the worker that started this process
        return reply

    def _write(self, content: _Written | None) -> None:
        self._outbox.put(content)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="taskmq-journal", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        due: float | None = None
        earliest = 0.0
        while True:
            content = self._next(None if due is None else due - time.monotonic())
            match content:
                case None:
                    due = earliest if due is None else due
                case threading.Event():
                    due = None
                    self._tell()
                    content.set()
                case BeginRun() | SaveValue() | LoggedLine() | DroppedLines():
                    self._send(content)
            if due is not None and due <= time.monotonic():
                due = None
                self._tell()
                earliest = time.monotonic() + _PERIOD

    def _next(self, wait: float | None) -> _Written | threading.Event | None:
        """Return what to write; None for news, or when `wait` is over."""
        try:
            return self._outbox.get(timeout=None if wait is None else max(wait, 0.0))
        except queue.Empty:
            return None

    def _tell(self) -> None:
        journal = self._journal
        if journal is not None and journal.is_dirty:
            # Before the news is read: later news is sent next time.
            journal.is_dirty = False
            self._send(News(journal.done, journal.total, journal.note, journal.details))
