"""Runs of plain functions in threads, without a waiter: no task, no future and no timer for each.

    FastPath -> begin -> a thread -> reported on the loop, together with others that have ended -> settled there

Each has a slot from its beginning to its end, as if a task of the pool ran it. An end is reported
once: that the function has returned or raised, that its time was over, or that it was given up. A thread that comes
back after that is not listened to.
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

__all__ = ["ThreadRuns"]

_NEVER_SOONER: Final = 0.001


class _Settled(Protocol):
    def __call__(self, delivery: Delivery, error: BaseException | None, /, *, now: float) -> None: ...


class ThreadRuns:
    """What goes on in threads, of one worker.

    Args:
        executor: whose threads carry it out.
        stats: counts every run, and is asked who wants to see each.
        ended: called with what an attempt's function came to, whose delivery is to be settled; an attempt that was
            given up ends with a `CancelledError`. Must not raise.
        settled: called with a delivery that has been settled here, or why it could not be. Must not raise.

    Attributes:
        going: those that have not ended.
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
        """Have a thread carry the attempt out, among these context variables; its time counts from now on.

        Args:
            count: where a success counts that leaves nothing to be stored; None where it leaves something.
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
        """Leave the attempt's thread to itself; nothing where it has ended."""
        run = self.going.get(attempt)
        if run is not None:
            self._abandon(run, asyncio.CancelledError())

    def deliveries(self) -> Iterator[Delivery]:
        """Of those that go on."""
        return (attempt.delivery for attempt in self.going)

    def ends(self) -> "list[asyncio.Future[None]]":
        """One for each that goes on, done when it has ended."""
        loop = asyncio.get_running_loop()
        return [self._watched.setdefault(run, loop.create_future()) for run in self.going.values()]

    def close(self) -> None:
        """Watch no time any more."""
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
        stats.succeeded(count, delivery, attempt.envelope, seconds, started=started)
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
        # What is said of it is said as if by the run: lines of the log carry its job.
        run.variables.copy().run(self._executor.give_up, run)
        self.finish(run, None, error)


class _ThreadRun(ThreadRun):
    """A run without a waiter."""

    __slots__ = ("attempt", "count", "runs")

    runs: ThreadRuns
    attempt: Attempt
    count: Count | None

    def tell(self, value: object, error: BaseException | None) -> None:
        # By its type: the error's own class may do anything when it is asked, and so may its `repr`.
        if error is not None and issubclass(type(error), StopIteration):
            # Which could not leave a coroutine, and so never means that a run has returned.
            failure = RuntimeError(f"the function raised {type_name(error)}").with_traceback(frames_of(error))
            failure.__cause__, error = error, failure
        self.runs.finish(self, value, error)


class _TimeLimit:
    """Runs that may all take so long: the first that has begun is the first whose time is over.

    So one timer does for all of them. It is set while there is one, and set again for the first when it rings.

    Attributes:
        due: when the time of each is over, by the loop's clock.
    """

    def __init__(self, seconds: float, over: "Callable[[_ThreadRun], None]") -> None:
        self.due: dict[_ThreadRun, float] = {}
        self._seconds = seconds
        self._over = over
        self._timer: asyncio.TimerHandle | None = None

    def add(self, run: _ThreadRun, loop: asyncio.AbstractEventLoop) -> None:
        self.due[run] = loop.time() + self._seconds
        if self._timer is None:
            # Without the variables of the run that happens to be the first.
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
                # A loop whose clock is coarse may ring too soon.
                self._timer = loop.call_later(max(due - now, _NEVER_SOONER), self._ring, loop, context=Context())
                return
            # The end of another one may have ended this one.
            if run in self.due:
                self._over(run)
