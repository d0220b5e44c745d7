"""Handle of a job, and iteration over many jobs in the order in which they end."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from datetime import datetime
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
from taskmq.model.states import Cancellation, JobState
from taskmq.model.units import Duration, parse_duration, to_datetime
from taskmq.model.values.celery_words import CeleryHints
from taskmq.model.values.return_type import ReturnType

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")


class Job(CeleryHints, Generic[R_co]):
    """A handle for a job: waits for its result, shows its state, cancels and reschedules it.

    Attributes:
        id: id of the job, the same in every attempt.
        task: name of its task; empty for a handle created from an id alone.
        existing: state of the job if it already existed and the call created none: `submit`, `submit_many`,
            `clone(new_id=)` and `retry(new_id=)`. A failed job stays failed; `app.jobs.retry(job.id)` resumes it.
            None if the call created the job, and for handles created from an id (`app.job`).
        reattached: of `retry`: number of jobs that ended because of the job's end, and wait for the new run.
    """

    __slots__ = ("_find_jobs", "_keeps_result", "_returns", "_was_sent", "existing", "id", "reattached", "task")

    def __init__(
        self,
        job_id: str,
        *,
        task: str,
        jobs: Callable[[], JobService],
        returns: ReturnType,
        keeps_result: bool = True,
        was_sent: bool = True,
    ) -> None:
        self.id: str = job_id
        self.task: str = task
        self.existing: JobState | None = None
        self.reattached: int = 0
        self._find_jobs = jobs
        self._returns = returns
        self._keeps_result = keeps_result
        self._was_sent = was_sent

    @property
    def _jobs(self) -> JobService:
        # Late, because a sender that awaits no job does without.
        return self._find_jobs()

    @property
    def _sessions(self) -> Sessions:
        return self._jobs.sent.sessions

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Return what the task returned, waiting for it until the job ends or `timeout` is over.

        Raises:
            TaskFailed: the job failed; carries the task's error as data.
            JobCancelled: the job was cancelled or has expired.
            ResultTimeout: the job did not end in time; it continues.
            ResultExpired: the job has ended, but its result is no longer kept.
            ResultDamaged: a large result differs from what was stored.
            StateUnavailable: the state could not be reached when the wait began.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        return self._outcome_of(await self._record(timeout)).result()

    result = blocking(aresult)

    async def aresult_or_none(self) -> R_co | None:
        """Return what the task returned if the job has ended, without waiting; None if it has not.

        Use `state` to distinguish that from a task that returned None. Raises the errors of `result`, except
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
        """Yield news about the job until it ends: `async for news in job.watch()`.
        Yields the present state, then each new state and progress, and finally the end, which arrives through a
        subscription. `taskmq.sse_text` formats each as a server-sent event.

        Args:
            every: interval for polling the progress; each watcher costs one small request.

        Raises:
            StateUnavailable: the state could not be reached when the wait began.
            UnsupportedFeature: the app has no state, or the task keeps no results.
        """
        seconds = parse_duration(every, what="every").total_seconds()
        return watch(self._jobs, self.id, every=seconds, was_sent=self._was_sent, ends=self.aoutcome)

    async def aoutcome(self, timeout: Duration | None = None) -> JobOutcome[R_co]:
        """Return the job's outcome, waiting for it like `result`; a failure is in the outcome, and not raised.

        Raises:
            ResultTimeout: the job did not end in time; it continues.
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
        """Return the state of the job, as far as broker, state and store know it.

        | state | known from |
        |---|---|
        | `succeeded`, `failed`, `cancelled` | its result, where results are kept |
        | `scheduled`, `retrying` | the state, where it waits for its time there (`TaskMQ(delay="state")`) |
        | `running`, and what a run came to | the progress that its task reports; a worker that dies reports nothing |
        | `queued` | it was sent, and nothing else is known: it waits at the broker, or it runs and reports nothing |
        | `unknown` | nothing: a handle made from an id alone (`app.job`) does not even show that it was sent |

        Raises:
            ResultExpired: the job has ended, but its outcome is no longer kept.
            StateUnavailable: the state could not be reached.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.state_of(self.id, was_sent=self._was_sent)

    state = blocking(astate)

    async def aprogress(self) -> JobProgress | None:
        """Return the last progress that the task reported with `Context.progress`; None before the first.

        It is at most a second old while the job runs, and stays readable after the end: that of a stored job with the
        job, that of other jobs for the app's `result_ttl`.

        Raises:
            StateUnavailable, StoreUnavailable: the state, or for a stored job the store, could not be reached.
            UnsupportedFeature: the app has no state, and the job is not stored.
        """
        return await self._jobs.find_progress(self.id)

    progress = blocking(aprogress)

    async def acancel(self, reason: str = "cancelled by its sender", *, remember: Duration = "7d") -> Cancellation:
        """Cancel the job in whatever state it is.

        A job that waits for its time in the state (`TaskMQ(delay="state")`) is removed when this returns. A job that
        waits at the broker is ended without a run by the worker that receives it. A running job is stopped: a
        coroutine gets `CancelledError`; a thread or process sees `context.cancelled`, and is abandoned or killed
        after a grace. The job may still end by itself at that moment; `state` shows how it ended.

        Args:
            reason: message of `JobCancelled` for callers that await the result.
            remember: how long workers remember the request: at least as long as the job may be delayed.

        Returns:
            What was done. False if the job has already `ended`, or is `unknown` because the state has no record of
            it. A job that waits at the broker, or runs without reports, is cancelled all the same.

        Raises:
            StateUnavailable: the state could not be reached; the job may be cancelled or not.
            UnsupportedFeature: the app has no state.
        """
        return await self._jobs.cancel_job(self.id, reason=reason, remember=remember, was_sent=self._was_sent)

    cancel = blocking(acancel)

    async def areschedule(self, *, delay: Duration | None = None, eta: datetime | None = None) -> bool:
        """Reschedule a job that waits in the state: `delay` from now, or at `eta`.

        Returns False if it does not wait there, or no longer.

        Raises:
            InvalidOption: neither or both are given, or `eta` has no time zone.
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
            started=None if record.started is None else to_datetime(record.started),
            finished=to_datetime(record.finished),
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
    """Iterator over jobs and their outcomes as they end, for `for` and `async for`; see `as_completed`."""

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
                wait.add_done_callback(_enqueue_when_done(ended, job))
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
            # Their outcomes are not needed.
            await asyncio.gather(*waits, return_exceptions=True)

    def __iter__(self) -> Iterator[tuple[Job[R], JobOutcome[R]]]:
        if not self._jobs:
            return
        sessions = self._jobs[0]._sessions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        outcomes = self.__aiter__()
        try:
            while (one := sessions.run_sync(_next(outcomes), instead="async for")) is not None:
                yield one
        finally:
            sessions.run_sync(outcomes.aclose(), instead="async for")


def as_completed(jobs: Iterable[Job[R]], *, timeout: Duration | None = None) -> AsCompleted[R]:
    """Iterate over pairs of a job and its outcome, each as soon as the job has ended.

    Works with `async for` and `for`, over one connection and without polling. A failed job does not end the
    iteration; its outcome has the error.

    Args:
        jobs: jobs of one app.
        timeout: timeout for all jobs together.

    Raises:
        ResultTimeout: some jobs did not end in time; they continue.
        StateUnavailable: the state could not be reached when a wait began.
        UnsupportedFeature: the app has no state, or a task keeps no results.
    """
    return AsCompleted(jobs, timeout=timeout)


async def _next(outcomes: AsyncGenerator[T, None]) -> T | None:
    return await anext(outcomes, None)


def _enqueue_when_done(
    ended: "asyncio.Queue[tuple[Job[R], asyncio.Task[JobOutcome[R]]]]", job: Job[R]
) -> Callable[["asyncio.Task[JobOutcome[R]]"], None]:
    return lambda wait: ended.put_nowait((job, wait))
