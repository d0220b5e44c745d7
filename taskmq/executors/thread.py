"""Plain functions in threads."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from typing import Final

from taskmq.errors import WorkerLost
from taskmq.execution import Execution
from taskmq.executors.coroutine import timed_out

__all__ = ["ThreadExecutor"]

_IDLE_SECONDS: Final = 30.0


class ThreadExecutor:
    """Daemon threads, started when needed, reused, and ended after some idle time.

    The number of runs is bounded by the worker's slots, not here: a thread that was given up must not keep
    the next run waiting.

    Attributes:
        abandoned: how many threads were given up and have not returned yet.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._is_closed = False
        self.abandoned = 0

    async def run(self, execution: Execution) -> object:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()
        self._submit(_Run(self, execution, context, loop, done))
        try:
            if execution.timeout is None:
                return await done
            # wait() leaves the future alone: the thread's answer may still come, and is dropped.
            await asyncio.wait((done,), timeout=execution.timeout)
            if done.done():
                return done.result()
            raise timed_out(execution)
        finally:
            if not done.done() or done.cancelled():
                execution.context.mark_cancelled()
                self.abandoned += 1

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
            self._jobs.put(run)
            if self._idle > 0:
                self._idle -= 1
                return
            thread = threading.Thread(target=self._serve, name="taskmq-task", daemon=True)
            self._threads.add(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            try:
                run = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    # A run that was put meanwhile has counted on this thread.
                    if self._idle <= 0:
                        continue
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                return
            if run is None:
                with self._lock:
                    self._threads.discard(threading.current_thread())
                return
            value, error = run.call()
            with self._lock:
                self._idle += 1
            # After that, so that the next run finds this thread idle.
            run.finish(value, error)


class _Run:
    """One run on its way through a thread."""

    __slots__ = ("_context", "_done", "_execution", "_loop", "_owner")

    def __init__(
        self,
        owner: ThreadExecutor,
        execution: Execution,
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        done: "asyncio.Future[object]",
    ) -> None:
        self._owner = owner
        self._execution = execution
        self._context = context
        self._loop = loop
        self._done = done

    def call(self) -> tuple[object, BaseException | None]:
        execution = self._execution
        try:
            return self._context.run(execution.function, *execution.args, **execution.kwargs), None
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is the task's failure, not the worker's end
            return None, error

    def finish(self, value: object, error: BaseException | None) -> None:
        # The loop is closed when the worker has gone on without this run.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, value, error)

    def _finish(self, value: object, error: BaseException | None) -> None:
        if self._execution.context.cancelled:
            self._owner.abandoned -= 1
        if self._done.done():
            return
        if error is None:
            self._done.set_result(value)
        elif isinstance(error, StopIteration):
            # A future refuses StopIteration.
            self._done.set_exception(RuntimeError(f"the task raised StopIteration: {error}"))
        else:
            self._done.set_exception(error)
