"""Runs of plain functions in threads, without a task, a future or a timer for each.

    FastPath -> begin -> a thread -> reported on the loop, together with other ended runs -> settled there

Each occupies a slot from start to end, as if a task of the pool ran it. An end is reported once: the function
returned or raised, its time was over, or it was abandoned. Later results of its thread are ignored.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Final, Protocol

from taskmq.contracts.broker import Delivery
from taskmq.executors.coroutine import timed_out
from taskmq.executors.thread import ThreadExecutor, ThreadRun
from taskmq.model.outcome import frames_of, type_name
from taskmq.model.telemetry.metrics import Count
from taskmq.run.execution import DONE, Execution
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.stats import WorkerStats

_NEVER_SOONER: Final = 0.001


class _Settled(Protocol):
    def __call__(self, delivery: Delivery, error: BaseException | None, /, *, now: float) -> None: ...


class ThreadRuns:
    """Runs of one worker in threads.

    Args:
        executor: executes them in its threads.
        stats: counts every run, and has the observers.
        ended: called with the result of an attempt whose delivery must be settled; an abandoned attempt ends with a
            `CancelledError`. Must not raise.
        settled: called with a delivery that was settled here, or with the error. Must not raise.

    Attributes:
        going: current runs.
    """

    def __init__(
        self,
        executor: ThreadExecutor,
        stats: WorkerStats,
        monotonic: Callable[[], float],
        *,
        ended: Callable[[Attempt, object, BaseException | None], None],
        settled: _Settled,
    ) -> None:
        self.going: dict[Attempt, _ThreadRun] = {}
        self._executor = executor
        self._stats = stats
        self._tell_ended = ended
        self._tell_settled = settled
        self._monotonic = monotonic
        self._limits: dict[float, _TimeLimit] = {}
        self._watched: dict[_ThreadRun, asyncio.Future[None]] = {}

    def begin(
        self, attempt: Attempt, execution: Execution, variables: Context, *, count: Count | None, now: float
    ) -> None:
        """Have a thread execute the attempt with these context variables; its time starts now.

        Args:
            count: count of successes without anything to store; None if there is something to store.
            now: by the monotonic clock.

        Raises:
            WorkerLost: the executor is closed.
            RuntimeError: no thread can be started.
        """
        loop = asyncio.get_running_loop()
        run = _ThreadRun(execution, variables)
        run.runs, run.attempt, run.count = self, attempt, count
        self._stats.running[attempt] = now
        self._executor.submit(run, loop)
        self.going[attempt] = run
        seconds = execution.timeout
        if seconds is not None:
            limit = self._limits.get(seconds)
            if limit is None:
                limit = self._limits[seconds] = _TimeLimit(seconds, self._time_out)
            limit.add(run, loop)

    def give_up(self, attempt: Attempt) -> None:
        """Abandon the attempt's thread; does nothing if it has ended."""
        run = self.going.get(attempt)
        if run is not None:
            self._abandon(run, asyncio.CancelledError())

    def deliveries(self) -> Iterator[Delivery]:
        """Return the deliveries of current runs."""
        return (attempt.delivery for attempt in self.going)

    def ends(self) -> "list[asyncio.Future[None]]":
        """Return a future for each current run, done when the run has ended."""
        loop = asyncio.get_running_loop()
        return [self._watched.setdefault(run, loop.create_future()) for run in self.going.values()]

    def close(self) -> None:
        """Stop watching time limits."""
        for limit in self._limits.values():
            limit.close()

    def finish(self, run: "_ThreadRun", value: object, error: BaseException | None) -> None:
        """Settle a run whose thread has ended."""
        attempt, execution, count, stats = run.attempt, run.execution, run.count, self._stats
        del self.going[attempt]
        if execution.timeout is not None:
            del self._limits[execution.timeout].due[run]
        if self._watched and (watched := self._watched.pop(run, None)) is not None and not watched.done():
            watched.set_result(None)
        if (
            count is None
            or error is not None
            or type(value) not in DONE
            or attempt.cancelled is not None
            or execution.context.journal is not None
        ):
            self._tell_ended(attempt, value, error)
            return
        delivery, now, started = attempt.delivery, self._monotonic(), execution.context.started
        seconds = now - stats.running.pop(attempt, now)
        stats.count_success(count, delivery, attempt.envelope, seconds, started=started)
        failure: BaseException | None = None
        try:
            delivery.ack()
        except BaseException as unexpected:  # noqa: BLE001 - handed to the delivery's owner
            failure = unexpected
        execution.context.is_settled = True
        self._tell_settled(delivery, failure, now=now)

    def _time_out(self, run: "_ThreadRun") -> None:
        self._abandon(run, timed_out(run.execution))

    def _abandon(self, run: "_ThreadRun", error: BaseException) -> None:
        # Logged in the context of the run, so that log lines carry its job.
        run.variables.copy().run(self._executor.give_up, run)
        self.finish(run, None, error)


class _ThreadRun(ThreadRun):
    """A run in a thread without a waiting coroutine."""

    __slots__ = ("attempt", "count", "runs")

    runs: ThreadRuns
    attempt: Attempt
    count: Count | None

    def tell(self, value: object, error: BaseException | None) -> None:
        # By its type: the error's own class may run any code when it is inspected, and so may its `repr`.
        if error is not None and issubclass(type(error), StopIteration):
            # StopIteration cannot leave a coroutine, so it never means that a run returned.
            failure = RuntimeError(f"the function raised {type_name(error)}").with_traceback(frames_of(error))
            failure.__cause__, error = error, failure
        self.runs.finish(self, value, error)


class _TimeLimit:
    """Runs with the same time limit: the first to start is the first to expire.

    So one timer serves all of them. It is set while there is a run, and set again for the next when it fires.

    Attributes:
        due: expiry of each run, by the loop's clock.
    """

    def __init__(self, seconds: float, over: "Callable[[_ThreadRun], None]") -> None:
        self.due: dict[_ThreadRun, float] = {}
        self._seconds = seconds
        self._over = over
        self._timer: asyncio.TimerHandle | None = None

    def add(self, run: _ThreadRun, loop: asyncio.AbstractEventLoop) -> None:
        self.due[run] = loop.time() + self._seconds
        if self._timer is None:
            # Without the variables of the run that happens to be first.
            self._timer = loop.call_later(self._seconds, self._ring, loop, context=Context())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for run, due in tuple(self.due.items()):
            if due > now:
                # A loop with a coarse clock may fire too early.
                self._timer = loop.call_later(max(due - now, _NEVER_SOONER), self._ring, loop, context=Context())
                return
            # The end of another run may have ended this one.
            if run in self.due:
                self._over(run)
