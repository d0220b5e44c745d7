"""Executor of plain functions in threads.

Runs that have not started wait in one line, and every thread that is awake takes the next one. The number of awake
threads depends on the duration of runs: if each takes long, there is a thread for each; if they are short, one thread
executes many in a row, because waking another would cost more than the run. If the line does not move for a moment
all the same, there is a thread for each again. Ended runs are reported to the loop together, as many as there are
when it looks.
"""

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

from taskmq.errors import WorkerLost
from taskmq.executors.coroutine import timed_out
from taskmq.executors.interrupt import ThreadInterrupt
from taskmq.run.console_log import DetailText
from taskmq.run.execution import Execution
from taskmq.run.forks import PROCESS, leave_fork
from taskmq.run.journal import FLOW
from taskmq.run.thread_frames import frame_of_thread

_log = logging.getLogger("taskmq.worker")

_IDLE_SECONDS: Final = 30.0

_AGAIN: Final = 0.01

# Seconds of a short run at most, and the time after which a line that does not move is too long.
_SHORT: Final = 0.0005
_STILL: Final = 0.002
# Weight of a new run in the mean.
_WEIGHT: Final = 1 / 8

# The function's return value or exception. Not a future's own exception: a coroutine that awaits a GeneratorExit is
# closed by it, and StopIteration cannot be one.
_Result = tuple[object, BaseException | None]
_NOTHING: Final[_Result] = (None, None)


class ThreadExecutor:
    """Daemon threads, started when needed, reused, and ended after some idle time.

    The worker's slots limit the number of runs, not this executor: an abandoned thread must not keep the next run
    waiting.

    Args:
        idle: seconds after which a thread without work ends.

    Attributes:
        abandoned: number of abandoned threads that have not returned.
    """

    def __init__(self, *, idle: float = _IDLE_SECONDS) -> None:
        self._idle_seconds = idle
        self._line: deque[ThreadRun] = deque()
        self._ended: deque[tuple[ThreadRun, _Result]] = deque()
        self._is_told = False
        self._told: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        # One queue for all idle threads, instead of one for each; the thread that gets the item runs.
        self._wakeup: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._coming = 0
        self._threads: set[threading.Thread] = set()
        self._mean = 1.0
        self._begun = 0
        self._looking: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.abandoned = 0

    async def run(self, execution: Execution) -> object:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result | None] = loop.create_future()
        run = _ThreadCall(execution, contextvars.copy_context(), loop, done)
        self.submit(run, loop)
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
            if not run.is_reported:
                self.give_up(run)
        value, error = result
        if error is not None:
            raise error
        return value

    def ask_to_stop(self, execution: Execution) -> None:
        execution.context.mark_cancelled()

    def preempt(self, execution: Execution, reason: str) -> None:
        execution.context.mark_preempted(reason)

    async def aclose(self) -> None:
        """Let idle threads end; running ones are daemons and are left behind."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        with self._lock:
            for _ in self._threads:
                self._wakeup.put(False)

    def on_report(self, call: Callable[[], None]) -> None:
        """Have `call` called on the loop after ended runs were reported: once for all of them."""
        self._told.append(call)

    def submit(self, run: "ThreadRun", loop: asyncio.AbstractEventLoop) -> None:
        """Have a thread execute the run, which is notified of its end on `loop`.

        Raises:
            WorkerLost: after `aclose`.
            RuntimeError: no thread can be started; the run will not happen.
        """
        if self._is_closed:
            raise WorkerLost("the worker has stopped")
        self._loop = loop
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
            # If no thread can be started, none is left to execute it.
            with contextlib.suppress(ValueError):
                self._line.remove(run)
            raise
        if self._looking is None:
            self._looking = loop.call_later(_STILL, self._look, loop, self._begun)

    def give_up(self, run: "ThreadRun") -> None:
        """Abandon a run that has not ended: it can see that, and its result is dropped."""
        run.execution.context.mark_cancelled()
        self.abandoned += 1
        run.is_abandoned = True
        run.warn()

    def _wake(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._coming += 1
                    self._wakeup.put(True)
                    continue
                thread = threading.Thread(target=self._serve, name=FLOW, daemon=True)
                thread.start()
                self._coming += 1
                self._threads.add(thread)

    def _look(self, loop: asyncio.AbstractEventLoop, begun: int) -> None:
        """Check whether the line moves."""
        self._looking = None
        if not self._line or self._is_closed:
            return
        if self._begun == begun:
            # On a busy machine, called threads have not arrived yet.
            self._wake(len(self._line) - self._coming)
        self._looking = loop.call_later(_STILL, self._look, loop, self._begun)

    def _collect(self) -> None:
        # First: runs that end from here on are reported again.
        self._is_told = False
        while self._ended:
            run, (value, error) = self._ended.popleft()
            run.is_reported = True
            if run.is_abandoned:
                self.abandoned -= 1
            else:
                run.tell(value, error)
        for call in self._told:
            call()

    def _serve(self) -> None:
        ended: tuple[ThreadRun, _Result] | None = None
        self._arrive()
        while True:
            ended = self._serve_line(ended)
            with self._lock:
                # Runs added meanwhile rely on this thread.
                if self._line:
                    continue
                self._idle += 1
            # Afterwards, so that the next run finds this thread idle.
            if ended is not None:
                self._tell(ended)
            # A waiting thread keeps no references.
            ended = None
            if not self._is_called():
                return
            self._arrive()

    def _arrive(self) -> None:
        with self._lock:
            self._coming -= 1

    def _serve_line(self, ended: "tuple[ThreadRun, _Result] | None") -> "tuple[ThreadRun, _Result] | None":
        """Execute the runs in line, and return the last one's end; report each end before the next run starts."""
        line, ident, clock = self._line, threading.get_ident(), time.monotonic
        while line:
            try:
                run = line.popleft()
            except IndexError:
                break
            self._begun += 1
            # Before, because this one may take long.
            if ended is not None:
                self._tell(ended)
            began, used = clock(), time.thread_time_ns()
            result = _NOTHING if run.is_abandoned else run.call(ident)
            run.execution.processor = (time.thread_time_ns() - used) // 1_000_000
            if PROCESS.is_fork:
                leave_fork(result[1])
            self._mean += (clock() - began - self._mean) * _WEIGHT
            ended = run, result
        return ended

    def _tell(self, ended: "tuple[ThreadRun, _Result]") -> None:
        self._ended.append(ended)
        if not self._is_told and self._loop is not None:
            self._is_told = True
            # The loop is closed if the worker has continued without these runs.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._collect)

    def _is_called(self) -> bool:
        """Wait for the queue; return whether it was for work, and not for the end of this thread."""
        try:
            is_work = self._wakeup.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return False
                # A caller relies on this thread meanwhile, and has added an item for it.
                is_work = self._wakeup.get_nowait()
        if not is_work:
            with self._lock:
                self._threads.discard(threading.current_thread())
        return is_work


class ThreadRun(ABC):
    """A run in a thread.

    Attributes:
        is_abandoned: whether it was abandoned: its result is dropped.
        is_reported: whether it has ended, and the loop knows.
        variables: the context variables that the function sees and changes.
    """

    __slots__ = ("_ident", "execution", "is_abandoned", "is_reported", "variables")

    def __init__(self, execution: Execution, variables: contextvars.Context) -> None:
        self.execution = execution
        self.variables = variables
        self.is_abandoned = False
        self.is_reported = False
        self._ident: int | None = None

    @abstractmethod
    def tell(self, value: object, error: BaseException | None) -> None:
        """Report the function's value or exception; called on the loop, once, unless abandoned. Never raises."""

    def call(self, ident: int) -> _Result:
        """Execute the run in this thread, which is `ident`."""
        execution = self.execution
        self._ident = ident
        try:
            return self.variables.run(execution.function, *execution.args, **execution.kwargs), None
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task is the task's failure, not the worker's end
            return None, error

    def warn(self) -> None:
        """Log that the thread is abandoned, and its stack."""
        execution, frame = self.execution, frame_of_thread(self._ident)
        _log.warning(
            "job %s of task %s: abandoning its thread, which cannot be stopped; its stack:\n%s",
            execution.context.job_id,
            execution.context.task,
            DetailText("(it has not started)" if frame is None else "".join(traceback.format_stack(frame))),
        )


class _ThreadCall(ThreadRun):
    """A run that a coroutine waits for."""

    __slots__ = ("_done", "_interrupt", "_loop")

    def __init__(
        self,
        execution: Execution,
        variables: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        done: "asyncio.Future[_Result | None]",
    ) -> None:
        super().__init__(execution, variables)
        self._loop = loop
        self._done = done
        self._interrupt = None if execution.soft_timeout is None else ThreadInterrupt()

    def interrupt(self) -> None:
        """Raise `SoftTimeout` inside, unless the function has returned."""
        if self._interrupt is not None and self._interrupt.interrupt() == "later" and not self._done.done():
            self._loop.call_later(_AGAIN, self.interrupt)

    def call(self, ident: int) -> _Result:
        if self._interrupt is None:
            return super().call(ident)
        execution = self.execution
        self._ident = ident
        return self._interrupt.call(
            lambda: self.variables.run(execution.function, *execution.args, **execution.kwargs)
        )

    def give_up(self) -> None:
        """Stop waiting for a run whose time is over. The thread's result may still arrive, and is dropped."""
        if not self._done.done():
            self._done.set_result(None)

    def tell(self, value: object, error: BaseException | None) -> None:
        if not self._done.done():
            self._done.set_result((value, error))
