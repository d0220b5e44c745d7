"""The handle of one job, where its result is awaited; and those of many, in the order in which they end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from taskmq.client.job_service import JobService
from taskmq.client.progress import JobProgress
from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.stores import ResultRecord
from taskmq.errors import (
    JobCancelled,
    ResultDamaged,
    ResultExpired,
    ResultTimeout,
    TaskFailed,
    TaskMQError,
    UnsupportedFeature,
)
from taskmq.jobs.outcome import JobOutcome
from taskmq.jobs.watch import JobNews, watch
from taskmq.model.codec import ReturnType
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration, parse_duration
from taskmq.model.values.celery_words import CeleryHints

__all__ = ["AsCompleted", "Job", "as_completed"]

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")


class Job(CeleryHints, Generic[R_co]):
    """A handle for a job: waits for its result, shows its state, cancels and reschedules it.

    Attributes:
        id: its id, the same in every attempt.
        task: its task's name; empty for a handle made from an id alone.
        existing: the state in which the job was, where the call that returned the handle made no job since there
            was this one: a submission, also with `submit_many`, `clone(new_id=)` and `retry(new_id=)`. One that has
            failed stays so: `app.jobs.retry(job.id)` lets it go on. None where the call has made the job, and of
            handles made from an id (`app.job`); `app.jobs.get` returns the job with its `state` in their place.
    """

    __slots__ = ("_jobs", "_keeps_result", "_returns", "_was_sent", "existing", "id", "task")

    def __init__(
        self,
        job_id: str,
        *,
        task: str,
        jobs: JobService,
        returns: ReturnType,
        keeps_result: bool = True,
        was_sent: bool = True,
    ) -> None:
        self.id: str = job_id
        self.task: str = task
        self.existing: JobState | None = None
        self._jobs = jobs
        self._returns = returns
        self._keeps_result = keeps_result
        self._was_sent = was_sent

    @property
    def _sessions(self) -> Sessions:
        return self._jobs.sent.sessions

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Return what the task returned, waiting for it as long as need be, or for `timeout`.

        Raises:
            TaskFailed: the job has failed; carries the task's error as data.
            JobCancelled: the job was cancelled or has expired.
            ResultTimeout: it has not ended in time; it goes on.
            ResultExpired: it has ended, and its result is not kept any more.
            ResultDamaged: a large result is not what was stored.
            StateUnavailable: the state could not be reached when the wait began.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        return self._outcome_of(await self._record(timeout)).result()

    result = blocking(aresult)

    async def aresult_or_none(self) -> R_co | None:
        """Return what the task returned if the job has ended, without waiting; None where it has not.

        A task that returns None looks the same: `state` tells them apart. Raises as `result` does, but for
        `ResultTimeout`.
        """
        self._check_kept()
        record = await self._jobs.fetch_result(self.id)
        if record is None:
            if await self._jobs.sent.has_expired(self.id):
                raise ResultExpired(self.id)
            return None
        return self._outcome_of(record).result()

    result_or_none = blocking(aresult_or_none)

    def watch(self, *, every: Duration = "1s") -> AsyncGenerator[JobNews[R_co], None]:
        """Yield what happens to the job until it ends: `async for news in job.watch()`, as a web page wants to have
        it.

        At first its state, then each new state and each new progress, and at last its end, which is waited for as
        `result` does and costs the state nothing meanwhile. `taskmq.sse_text` makes a server-sent event of each.

        Args:
            every: how often to look for progress; one small question for each watcher.

        Raises:
            StateUnavailable: the state could not be reached when the wait began.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        seconds = parse_duration(every, what="every").total_seconds()
        return watch(self._jobs, self.id, every=seconds, was_sent=self._was_sent, ends=self.aoutcome)

    async def aoutcome(self, timeout: Duration | None = None) -> JobOutcome[R_co]:
        """Return how the job ended, waiting for it as `result` does; its own failure is in the outcome, not raised.

        Raises:
            ResultTimeout: it has not ended in time; it goes on.
            StateUnavailable: the state could not be reached when the wait began.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        try:
            record = await self._record(timeout)
        except (ResultExpired, ResultDamaged) as error:
            return JobOutcome(self.id, None, error)
        return self._outcome_of(record)

    outcome = blocking(aoutcome)

    def _check_kept(self) -> None:
        if not self._keeps_result:
            raise UnsupportedFeature(f"task {self.task} keeps no results (result=False), so none can be awaited")

    async def _record(self, timeout: Duration | None) -> ResultRecord:
        self._check_kept()
        limit = None if timeout is None else parse_duration(timeout, what="timeout")
        record = await self._jobs.wait_for_result(self.id, None if limit is None else limit.total_seconds())
        if record is None:
            seconds = 0.0 if limit is None else limit.total_seconds()
            raise ResultTimeout(f"job {self.id} has not ended within {seconds:g} s; it goes on")
        return record

    async def astate(self) -> JobState:
        """Return how far the job is, as far as broker, state and store know.

        | state | known from |
        |---|---|
        | `succeeded`, `failed`, `cancelled` | its result, where results are kept |
        | `scheduled`, `retrying` | the state, where it waits for its time there (`TaskMQ(delay="state")`) |
        | `running`, and what a run came to | the progress that its task reports; a worker that dies reports nothing |
        | `queued` | it was sent, and nothing else is known: it waits at the broker, or it runs and reports nothing |
        | `unknown` | nothing: a handle made from an id alone (`app.job`) does not even show that it was sent |

        Raises:
            ResultExpired: it has ended, and how is not kept any more.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.state_of(self.id, was_sent=self._was_sent)

    state = blocking(astate)

    async def aprogress(self) -> JobProgress | None:
        """Return the last progress that the running task reported with `Context.progress`; None before the first.

        At most half a second old while the state answers. It stays readable for the app's `result_ttl`, also when the
        job has ended.

        Raises:
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.find_progress(self.id)

    progress = blocking(aprogress)

    async def acancel(self, reason: str = "cancelled by its sender", *, remember: Duration = "7d") -> Cancellation:
        """Cancel the job, wherever it is.

        One that waits for its time in the state (`TaskMQ(delay="state")`) is gone when this returns. One that waits
        at the broker is ended, without a run, by the worker that gets it. One that runs is stopped: a coroutine gets
        `CancelledError`, a thread or process sees `context.cancelled` and is given up, or killed, after a grace. It
        may end by itself in the very moment; `state` says how it ended.

        Args:
            reason: what `JobCancelled` says to those who await the result.
            remember: how long workers end the job when they meet it: at least as long as it may be on its way.

        Returns:
            Which of these it was; false where the job has `ended` already, and where it is `unknown`: the state has
            not heard of it. One that waits at the broker, or runs and reports nothing, is ended all the same.

        Raises:
            StateUnavailable: the state could not be reached; the job may be cancelled or not.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.cancel_job(self.id, reason=reason, remember=remember, was_sent=self._was_sent)

    cancel = blocking(acancel)

    async def areschedule(self, *, delay: Duration | None = None, eta: datetime | None = None) -> bool:
        """Have the job run at another time while it waits in the state: `delay` from now, or at `eta`.

        False: it does not wait there (any more).

        Raises:
            InvalidOption: neither of the two is given, or both, or an `eta` without a time zone.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.reschedule_waiting(self.id, delay=delay, eta=eta)

    reschedule = blocking(areschedule)

    def _outcome_of(self, record: ResultRecord) -> JobOutcome[R_co]:
        return JobOutcome(
            self.id,
            record.state,
            self._error_of(record),
            attempts=record.attempt,
            started=None if record.started is None else _instant(record.started),
            finished=_instant(record.finished),
            worker=record.worker,
            _value=record.value,
            _content_type=record.content_type,
            _returns=self._returns,
        )

    def _error_of(self, record: ResultRecord) -> TaskMQError | None:
        error = record.error
        if record.state is JobState.SUCCEEDED:
            if record.blob is not None:
                return UnsupportedFeature(
                    f"the result of job {self.id} is kept beside the state: this app needs its worker's results_at="
                )
            return None
        if record.state in (JobState.CANCELLED, JobState.EXPIRED, JobState.SKIPPED):
            return JobCancelled(f"job {self.id} was {record.state}: {error.message if error else ''}")
        return TaskFailed(
            self.id,
            type_name=error.type_name if error else "",
            message=error.message if error else "",
            traceback=error.traceback if error else "",
            attempts=record.attempt,
        )

    def __repr__(self) -> str:
        return f"<Job {self.task} {self.id}>"


class AsCompleted(Generic[R]):
    """Yields jobs with their outcomes as they end, to `for` and `async for`; `as_completed` makes it."""

    def __init__(self, jobs: Iterable[Job[R]], *, timeout: Duration | None) -> None:
        self._jobs = list(jobs)
        self._limit = None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()

    async def __aiter__(self) -> AsyncGenerator[tuple[Job[R], JobOutcome[R]], None]:
        loop = asyncio.get_running_loop()
        deadline = None if self._limit is None else loop.time() + self._limit
        ended: asyncio.Queue[tuple[Job[R], asyncio.Task[JobOutcome[R]]]] = asyncio.Queue()
        waits: set[asyncio.Task[JobOutcome[R]]] = set()
        try:
            for job in self._jobs:
                wait = loop.create_task(job.aoutcome())
                waits.add(wait)
                wait.add_done_callback(_telling(ended, job))
            while waits:
                try:
                    async with asyncio.timeout_at(deadline):
                        job, wait = await ended.get()
                except TimeoutError:
                    raise ResultTimeout(
                        f"{len(waits)} of {len(self._jobs)} jobs have not ended within {self._limit:g} s; they go on"
                    ) from None
                waits.discard(wait)
                yield job, wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            # No caller looks at their outcomes.
            await asyncio.gather(*waits, return_exceptions=True)

    def __iter__(self) -> Iterator[tuple[Job[R], JobOutcome[R]]]:
        if not self._jobs:
            return
        sessions = self._jobs[0]._sessions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        coming = self.__aiter__()
        try:
            while (one := sessions.run_sync(_next(coming), instead="async for")) is not None:
                yield one
        finally:
            sessions.run_sync(coming.aclose(), instead="async for")


def as_completed(jobs: Iterable[Job[R]], *, timeout: Duration | None = None) -> AsCompleted[R]:
    """Pairs of a job and its outcome, each as soon as the job has ended; for `async for` and for `for`.

    All are waited for over one connection, without polling. A failed job does not end the iteration: its outcome says
    so.

    Args:
        jobs: of one app.
        timeout: for all together.

    Raises:
        ResultTimeout: some have not ended in time; they go on.
        StateUnavailable: the state could not be reached when a wait began.
        UnsupportedFeature: the app has no state, or a task keeps no results.
    """
    return AsCompleted(jobs, timeout=timeout)


async def _next(coming: AsyncGenerator[T, None]) -> T | None:
    return await anext(coming, None)


def _telling(
    ended: "asyncio.Queue[tuple[Job[R], asyncio.Task[JobOutcome[R]]]]", job: Job[R]
) -> Callable[["asyncio.Task[JobOutcome[R]]"], None]:
    return lambda wait: ended.put_nowait((job, wait))


def _instant(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
