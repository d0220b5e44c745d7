"""Plain functions in threads.

Runs that have not begun stand in one line, and every thread that is awake takes the next one from it. How many are
awake depends on how long runs take: where each takes long, there is a thread for each; where they are short, one
carries out many in a row, since waking another would cost more than the run. Should the line stand still for a moment
all the same, there is a thread for each again. Ended runs are told to the loop together, as many as there are by the
time that it looks.
"""

import asyncio
import contextlib
import contextvars
import logging
import queue
import sys
import threading
import time
import traceback
from collections import deque
from typing import Final

from taskmq.errors import WorkerLost
from taskmq.execution import Execution
from taskmq.executors.coroutine import timed_out
from taskmq.executors.interrupt import ThreadInterrupt

__all__ = ["ThreadExecutor"]

_log = logging.getLogger("taskmq.worker")

_IDLE_SECONDS: Final = 30.0

_AGAIN: Final = 0.01

# Seconds that a short run takes at most, and after which a line that stands still is too long.
_SHORT: Final = 0.0005
_STILL: Final = 0.002
# Of the mean, how much a new run counts.
_WEIGHT: Final = 1 / 8

# What the function returned, or what it raised. Not a future's own exception: a coroutine that awaits one that is
# GeneratorExit is closed by it, and one that is StopIteration cannot be.
_Result = tuple[object, BaseException | None]
_NOTHING: Final[_Result] = (None, None)


class ThreadExecutor:
    """Daemon threads, started when needed, reused, and ended after some idle time.

    The number of runs is bounded by the worker's slots, not here: a thread that was given up must not keep
    the next run waiting.

    Args:
        idle: seconds after which a thread without work ends.

    Attributes:
        abandoned: how many threads were given up and have not returned yet.
    """

    def __init__(self, *, idle: float = _IDLE_SECONDS) -> None:
        self._idle_seconds = idle
        self._line: deque[_Run] = deque()
        self._ended: deque[tuple[_Run, _Result]] = deque()
        self._is_told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # A bell for each idle thread would have to be kept apart; whoever hears this one goes.
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._mean = 1.0
        self._begun = 0
        self._looking: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.abandoned = 0

    async def run(self, execution: Execution) -> object:
        loop = self._loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result | None] = loop.create_future()
        run = _Run(self, execution, contextvars.copy_context(), loop, done)
        self._submit(run, loop)
        soft = None if execution.soft_timeout is None else loop.call_later(execution.soft_timeout, run.interrupt)
        hard = None if execution.timeout is None else loop.call_later(execution.timeout, run.give_up)
        try:
            result = await done
            if result is None:
                raise timed_out(execution)
        finally:
            if soft is not None:
                soft.cancel()
            if hard is not None:
                hard.cancel()
            if not run.is_told:
                execution.context.mark_cancelled()
                self.abandoned += 1
                run.is_abandoned = True
                run.warn()
        value, error = result
        if error is not None:
            raise error
        return value

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    async def aclose(self) -> None:
        """Let idle threads end; running ones are daemons and are left behind."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        with self._lock:
            for _ in self._threads:
                self._bell.put(False)

    # On the loop -------------------------------------------------------------------------------------------

    def _submit(self, run: "_Run", loop: asyncio.AbstractEventLoop) -> None:
        if self._is_closed:
            raise WorkerLost("the worker has stopped")
        self._line.append(run)
        try:
            if self._mean > _SHORT:
                self._wake(1)
                return
            with self._lock:
                awake = len(self._threads) - self._idle
            wanted = 1 + int(len(self._line) * self._mean / _STILL)
            if awake < wanted:
                self._wake(1)
        except BaseException:
            # Where no thread can be started, nobody is left to carry it out.
            with contextlib.suppress(ValueError):
                self._line.remove(run)
            raise
        if self._looking is None:
            self._looking = loop.call_later(_STILL, self._look, loop, self._begun)

    def _wake(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._bell.put(True)
                    continue
                thread = threading.Thread(target=self._serve, name="taskmq-task", daemon=True)
                thread.start()
                self._threads.add(thread)

    def _look(self, loop: asyncio.AbstractEventLoop, begun: int) -> None:
        """Whether the line moves."""
        self._looking = None
        if not self._line or self._is_closed:
            return
        if self._begun == begun:
            self._wake(len(self._line))
        self._looking = loop.call_later(_STILL, self._look, loop, self._begun)

    def _collect(self) -> None:
        # First: what ends from here on is told again.
        self._is_told = False
        while self._ended:
            run, result = self._ended.popleft()
            run.tell(result)

    # In the threads ----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        ended: tuple[_Run, _Result] | None = None
        while True:
            while self._line:
                ended = self._serve_one(ended)
            with self._lock:
                # What was put in line meanwhile has counted on this thread.
                if self._line:
                    continue
                self._idle += 1
            # After that, so that the next run finds this thread idle.
            self._tell(ended)
            # A thread that waits holds on to nothing.
            ended = None
            if not self._is_called():
                return

    def _serve_one(self, before: "tuple[_Run, _Result] | None") -> "tuple[_Run, _Result] | None":
        """Carry out the next run, and how it ended; what ended `before` is told first, for this may take long."""
        try:
            run = self._line.popleft()
        except IndexError:
            return before
        self._begun += 1
        self._tell(before)
        began = time.monotonic()
        result = _NOTHING if run.is_abandoned else run.call()
        self._mean += (time.monotonic() - began - self._mean) * _WEIGHT
        return run, result

    def _tell(self, ended: "tuple[_Run, _Result] | None") -> None:
        if ended is None:
            return
        self._ended.append(ended)
        if not self._is_told and self._loop is not None:
            self._is_told = True
            # The loop is closed when the worker has gone on without these runs.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._collect)

    def _is_called(self) -> bool:
        """Wait for the bell; whether it was for work, and not for the end of this thread."""
        try:
            is_work = self._bell.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return False
                # Somebody has counted on this thread meanwhile, and has rung for it.
                is_work = self._bell.get_nowait()
        if not is_work:
            with self._lock:
                self._threads.discard(threading.current_thread())
        return is_work


class _Run:
    """One run on its way through a thread."""

    __slots__ = ("_context", "_done", "_execution", "_ident", "_interrupt", "_loop", "_owner", "is_abandoned",
                 "is_told")  # fmt: skip

    def __init__(
        self,
        owner: ThreadExecutor,
        execution: Execution,
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        done: "asyncio.Future[_Result | None]",
    ) -> None:
        self._owner = owner
        self._execution = execution
        self._context = context
        self._loop = loop
        self._done = done
        self._ident: int | None = None
        self.is_abandoned = False
        self.is_told = False
        self._interrupt = None if execution.soft_timeout is None else ThreadInterrupt()

    def interrupt(self) -> None:
        """Raise `SoftTimeout` inside, unless the function has returned."""
        if self._interrupt is not None and self._interrupt.interrupt() == "later" and not self._done.done():
            self._loop.call_later(_AGAIN, self.interrupt)

    def warn(self) -> None:
        """Say that the thread is left to itself, and where it is."""
        execution, ident = self._execution, self._ident
        # The interpreter's own way to see what another thread does.
        frame = None if ident is None else sys._current_frames().get(ident)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        _log.warning(
            "job %s of task %s: a thread cannot be stopped, so it is left to itself; it is in\n%s",
            execution.context.job_id,
            execution.context.task,
            "(it has not begun)\n" if frame is None else "".join(traceback.format_stack(frame)),
        )

    def call(self) -> _Result:
        execution = self._execution
        self._ident = threading.get_ident()
        if self._interrupt is not None:
            return self._interrupt.call(
                lambda: self._context.run(execution.function, *execution.args, **execution.kwargs)
            )
        try:
            return self._context.run(execution.function, *execution.args, **execution.kwargs), None
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is the task's failure, not the worker's end
            return None, error

    def give_up(self) -> None:
        """Wait for it no longer: its time is over. The thread's answer may still come, and is dropped."""
        if not self._done.done():
            self._done.set_result(None)

    def tell(self, result: _Result) -> None:
        """It has ended, called on the loop."""
        self.is_told = True
        if self.is_abandoned:
            self._owner.abandoned -= 1
        if not self._done.done():
            self._done.set_result(result)
