"""The handle of one job: where its result is awaited."""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar, cast

from taskmq.codec import ReturnType
from taskmq.duration import Duration, parse_duration
from taskmq.errors import JobCancelled, ResultTimeout, TaskFailed
from taskmq.progress import JobProgress
from taskmq.states import JobState
from taskmq.stores import ResultRecord

__all__ = ["Job", "JobBackend"]

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class JobBackend(Protocol):
    """What a handle needs from its app."""

    async def wait_for_result(self, job_id: str, timeout: float | None) -> ResultRecord | None: ...

    async def find_result(self, job_id: str) -> ResultRecord | None: ...

    async def cancel_job(self, job_id: str, *, reason: str, remember: Duration) -> bool: ...

    async def find_progress(self, job_id: str) -> JobProgress | None: ...

    async def reschedule_waiting(self, job_id: str, *, delay: Duration | None, eta: datetime | None) -> bool: ...

    def run_sync(self, call: Coroutine[Any, Any, T], *, instead: str) -> T: ...


class Job(Generic[R_co]):
    """A job that was sent.

    Attributes:
        id: its id, the same in every attempt.
        task: its task's name; empty for a handle made from an id alone.
    """

    __slots__ = ("_backend", "_returns", "id", "task")

    def __init__(self, job_id: str, *, task: str, backend: JobBackend, returns: ReturnType) -> None:
        self.id: str = job_id
        self.task: str = task
        self._backend = backend
        self._returns = returns

    def result(self, timeout: Duration | None = None) -> R_co:
        """What the task returned, waiting for it as long as need be, or for `timeout`.

        Raises:
            TaskFailed: the job is dead; carries the task's error as data.
            JobCancelled: the job was cancelled or has expired.
            ResultTimeout: it has not ended in time; it goes on.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        return self._backend.run_sync(self.aresult(timeout), instead="aresult")

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """`result` for coroutines."""
        limit = None if timeout is None else parse_duration(timeout, what="timeout")
        record = await self._backend.wait_for_result(self.id, None if limit is None else limit.total_seconds())
        if record is None:
            raise ResultTimeout(f"job {self.id} has not ended within {limit or timedelta()}; it goes on")
        return self._value(record)

    def state(self) -> JobState:
        """The job's state as far as its result tells: `queued` until it has ended."""
        return self._backend.run_sync(self.astate(), instead="astate")

    async def astate(self) -> JobState:
        """`state` for coroutines."""
        record = await self._backend.find_result(self.id)
        return JobState.QUEUED if record is None else record.state

    def progress(self) -> JobProgress | None:
        """What the running task has told last through `Context.progress`; None where it has told nothing (yet).

        At most half a second old while the state answers. It stays readable for the app's `result_ttl`, also when the
        job has ended.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return self._backend.run_sync(self.aprogress(), instead="aprogress")

    async def aprogress(self) -> JobProgress | None:
        """`progress` for coroutines."""
        return await self._backend.find_progress(self.id)

    def cancel(self, reason: str = "cancelled by its sender", *, remember: Duration = "7d") -> bool:
        """Cancel the job, wherever it is.

        One that waits for its time in the state (`TaskMQ(delay="state")`) is gone when this returns. One that waits
        at the broker is ended, without a run, by the worker that gets it. One that runs is stopped: a coroutine gets
        `CancelledError`, a thread or process sees `context.cancelled` and is given up, or killed, after a grace. It
        may end by itself in the very moment; `state` tells how it ended.

        Args:
            reason: what `JobCancelled` says to those who await the result.
            remember: how long workers end the job when they meet it: at least as long as it may be on its way.

        Returns:
            False where its result says that it has ended already.

        Raises:
            StateUnavailable: the state could not be reached; the job may be cancelled or not.
            UnsupportedFeature: the app has no state.
        """
        return self._backend.run_sync(self.acancel(reason, remember=remember), instead="acancel")

    async def acancel(self, reason: str = "cancelled by its sender", *, remember: Duration = "7d") -> bool:
        """`cancel` for coroutines."""
        return await self._backend.cancel_job(self.id, reason=reason, remember=remember)

    def reschedule(self, *, delay: Duration | None = None, eta: datetime | None = None) -> bool:
        """Have the job run at another time while it waits in the state: `delay` from now, or at `eta`.

        False: it does not wait there (any more).

        Raises:
            InvalidOption: neither of the two is given, or both, or an `eta` without a time zone.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return self._backend.run_sync(self.areschedule(delay=delay, eta=eta), instead="areschedule")

    async def areschedule(self, *, delay: Duration | None = None, eta: datetime | None = None) -> bool:
        """`reschedule` for coroutines."""
        return await self._backend.reschedule_waiting(self.id, delay=delay, eta=eta)

    def _value(self, record: ResultRecord) -> R_co:
        if record.state is JobState.SUCCEEDED:
            return cast("R_co", self._returns.decode(record.value, record.content_type))
        if record.state is JobState.CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled: {record.error.message if record.error else ''}")
        error = record.error
        raise TaskFailed(
            self.id,
            type_name=error.type_name if error else "",
            message=error.message if error else "",
            traceback=error.traceback if error else "",
            attempts=record.attempt,
        )

    def __repr__(self) -> str:
        return f"<Job {self.task} {self.id}>"
