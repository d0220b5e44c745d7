"""Plain functions in threads."""

import asyncio
import contextlib
import contextvars
import logging
import queue
import sys
import threading
import traceback
from typing import Final

from taskmq.errors import WorkerLost
from taskmq.execution import Execution
from taskmq.executors.coroutine import timed_out
from taskmq.executors.interrupt import ThreadInterrupt

__all__ = ["ThreadExecutor"]

_log = logging.getLogger("taskmq.worker")

_IDLE_SECONDS: Final = 30.0

_AGAIN: Final = 0.01

# What the function returned, or what it raised. Not a future's own exception: a coroutine that awaits one that is
# GeneratorExit is closed by it, and one that is StopIteration cannot be.
_Result = tuple[object, BaseException | None]


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
        self._jobs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._is_closed = False
        self.abandoned = 0

    async def run(self, execution: Execution) -> object:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        run = _Run(self, execution, contextvars.copy_context(), loop, done)
        self._submit(run)
        timer = None
        if execution.soft_timeout is not None:
            timer = loop.call_later(execution.soft_timeout, run.interrupt)
        try:
            if execution.timeout is None:
                await done
            else:
                # wait() leaves the future alone: the thread's answer may still come, and is dropped.
                await asyncio.wait((done,), timeout=execution.timeout)
                if not done.done():
                    raise timed_out(execution)
        finally:
            if timer is not None:
                timer.cancel()
            if not done.done() or done.cancelled():
                execution.context.mark_cancelled()
                self.abandoned += 1
                run.is_abandoned = True
                run.warn()
        value, error = done.result()
        if error is not None:
            raise error
        return value

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    async def aclose(self) -> None:
        """Let idle threads end; running ones are daemons and are left behind."""
        self._is_closed = True
        with self._lock:
            for _ in self._threads:
                self._jobs.put(None)

    def _submit(self, run: "_Run") -> None:
        with self._lock:
            if self._is_closed:
                raise WorkerLost("the worker has stopped")
            if self._idle > 0:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._serve, name="taskmq-task", daemon=True)
                # Before the run is put: where no thread can be started, nobody is left to carry it out.
                thread.start()
                self._threads.add(thread)
            self._jobs.put(run)

    def _serve(self) -> None:
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        """Whether the thread goes on. A frame of its own, so that a waiting thread holds on to nothing."""
        try:
            run = self._jobs.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                # A run that was put meanwhile has counted on this thread.
                if self._idle <= 0:
                    return True
                self._idle -= 1
                self._threads.discard(threading.current_thread())
            return False
        if run is None:
            with self._lock:
                self._threads.discard(threading.current_thread())
            return False
        result = run.call()
        with self._lock:
            self._idle += 1
        # After that, so that the next run finds this thread idle.
        run.finish(result)
        return True


class _Run:
    """One run on its way through a thread."""

    __slots__ = ("_context", "_done", "_execution", "_ident", "_interrupt", "_loop", "_owner", "is_abandoned")

    def __init__(
        self,
        owner: ThreadExecutor,
        execution: Execution,
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        done: "asyncio.Future[_Result]",
    ) -> None:
        self._owner = owner
        self._execution = execution
        self._context = context
        self._loop = loop
        self._done = done
        self._ident: int | None = None
        self.is_abandoned = False
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

    def finish(self, result: _Result) -> None:
        # The loop is closed when the worker has gone on without this run.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, result)

    def _finish(self, result: _Result) -> None:
        if self.is_abandoned:
            self._owner.abandoned -= 1
        if not self._done.done():
            self._done.set_result(result)
