"""What the tests do with a store, in few words."""

import itertools
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from taskmq.contracts.jobs import (
    AppliedReport,
    DispatchBatch,
    DispatchedJob,
    DispatchStore,
    DueJob,
    JobDetail,
    JobRecord,
    JobStore,
    JobUpdate,
    Lane,
    NewJob,
    Pick,
    Submitted,
    Withdrawn,
    partition_key,
)
from taskmq.contracts.stores import Lease
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.jobs.tokens import next_token
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

__all__ = [
    "BODY",
    "HOUR",
    "LONG",
    "QUEUE",
    "JobDriver",
    "after",
    "error",
    "ids",
    "later",
    "new_id",
    "report",
    "unlike",
]

HOUR: Final = 3_600_000
LONG: Final = 3_600.0
QUEUE: Final = "mail"
BODY: Final = b'{"task":"send_mail","args":[1]}'

# Ids of one millisecond are in the order in which they are made, and those of two processes differ.
_order = itertools.count(int.from_bytes(os.urandom(4)) << 12)


def new_id(now_ms: int) -> str:
    """An id of this instant, larger than those made before of the same one."""
    return new_job_id(now_ms, next(_order).to_bytes(10))


def error(text: str, kind: str = "ValueError") -> ErrorRecord:
    return ErrorRecord(type_name=kind, message=text, traceback=f"Traceback: {text}")


def unlike(token: int) -> int:
    """A token of the same dispatch number that was never given."""
    return token ^ 1


def later(token: int) -> int:
    """The token of a later dispatch that this store has not written down."""
    return next_token(token, 7)


class JobDriver:
    """Submits, changes, dispatches and reports, and reads back what became of it.

    Attributes:
        store: the store.
        schedulers: its side for schedulers.
    """

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.schedulers: DispatchStore = store.dispatching
        self._epochs: dict[int, int] = {}

    async def new(self, **fields: Any) -> NewJob:
        """A job that is not submitted yet; `due` and `expires` are ms from the store's now on."""
        now = await self.store.now_ms()
        for name in ("due", "expires"):
            if fields.get(name) is not None:
                fields[name] = max(0, now + fields[name])
        given: dict[str, Any] = {"id": new_id(now), "task": "send_mail", "queue": QUEUE, "body": BODY, **fields}
        return NewJob(**given)

    async def submit(self, **fields: Any) -> JobRecord:
        """A job that was submitted, as the store has it."""
        job = await self.new(**fields)
        (submitted,) = await self.store.submit([job])
        assert submitted.is_new
        return await self.read(job.id)

    async def submitted(self, **fields: Any) -> Submitted:
        """What became of the submission of one job."""
        (submitted,) = await self.store.submit([await self.new(**fields)])
        return submitted

    async def submit_many(self, count: int, **fields: Any) -> list[JobRecord]:
        """Jobs of one submission."""
        jobs = [await self.new(**fields) for _ in range(count)]
        await self.store.submit(jobs)
        return [await self.read(job.id) for job in jobs]

    async def read(self, job: JobRecord | DispatchedJob | str) -> JobRecord:
        """The job as it is now."""
        found = await self.store.get(job if isinstance(job, str) else job.id)
        assert found is not None, f"job {job} is gone"
        return found

    async def state(self, job: JobRecord | DispatchedJob | str) -> JobState:
        return (await self.read(job)).state

    async def update(self, job: JobRecord, after: JobState | None = None, **fields: Any) -> JobRecord | None:
        """Change the job from what `job` says it is; `after` is its state unless it is given."""
        after = job.state if after is None else after
        given: dict[str, Any] = {"kind": "change", **fields}
        return await self.store.update(
            JobUpdate(id=job.id, before=job.state, version=job.version, after=after, **given)
        )

    async def updated(self, job: JobRecord, after: JobState | None = None, **fields: Any) -> JobRecord:
        """The job after a change that took place."""
        changed = await self.update(job, after, **fields)
        assert changed is not None, f"{job.state} -> {after or job.state} was refused"
        assert changed == await self.read(job)
        assert changed.version == job.version + 1
        return changed

    async def request_cancel(self, job: JobRecord, reason: str = "not needed") -> JobRecord:
        """The job with the note that its worker is to stop it."""
        return await self.updated(job, cancel_requested=reason, kind="cancel_requested")

    async def release(self) -> set[str]:
        """Let all that has ended count for those that wait for it; the queues that have got jobs which are ready."""
        queues: set[str] = set()
        while True:
            released = await self.schedulers.release_dependents()
            queues |= released.queues
            if not released.is_more:
                return queues

    async def epoch(self, partition: int) -> int:
        """The epoch of the partition, which this driver holds from now on; another one with each `next_epoch`."""
        if partition not in self._epochs:
            self._epochs[partition] = await self.next_epoch(partition)
        return self._epochs[partition]

    async def next_epoch(self, partition: int) -> int:
        """Take the partition from its holder."""
        leases, key = self.schedulers.leases, partition_key(partition)
        answer = await leases.acquire(key, owner="driver", seconds=LONG)
        while isinstance(answer, Lease):
            # Another writer of the test may take it first.
            await leases.release(key, token=answer.token)
            answer = await leases.acquire(key, owner="driver", seconds=LONG)
        self._epochs[partition] = answer
        return answer

    async def lanes(self, queue: str = QUEUE) -> list[Lane]:
        """The queue's lanes with jobs that are ready, in the order in which they go."""
        found = await self.schedulers.lanes(self.schedulers.partition_of(queue))
        assert len(found) == len(set(found))
        return sorted((lane for lane in found if lane.queue == queue), key=_by_priority)

    async def timers(self) -> list[DueJob]:
        """What waits for its time, in all partitions, the first first."""
        far = await self.store.now_ms() + 1_000 * HOUR
        partitions = range(self.schedulers.partitions)
        return sorted(
            [
                timer
                for partition in partitions
                for timer in await self.schedulers.due(partition, until=far, limit=1_000)
            ]
        )

    async def try_dispatch(self, *picks: Pick, queue: str = QUEUE, epoch: int | None = None) -> DispatchBatch | None:
        """Dispatch these, by default all that is ready in the queue."""
        partition = self.schedulers.partition_of(queue)
        if epoch is None:
            epoch = await self.epoch(partition)
        chosen = picks or [Pick(lane, 1_000) for lane in await self.lanes(queue)]
        return await self.schedulers.dispatch(partition, epoch, chosen)

    async def dispatch(self, *picks: Pick, queue: str = QUEUE) -> DispatchBatch:
        """A batch with at least one job."""
        batch = await self.try_dispatch(*picks, queue=queue)
        assert batch is not None, f"nothing was dispatched of {queue}"
        return batch

    async def undispatch(
        self, *jobs: DispatchedJob, epoch: int | None = None, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        """Take back jobs of one queue, as the holder of its partition."""
        partition = self.schedulers.partition_of(jobs[0].queue)
        held = await self.epoch(partition) if epoch is None else epoch
        return await self.schedulers.undispatch(partition, held, jobs, delay=delay, reason=reason)

    async def fail(
        self, *jobs: DispatchedJob, reason: str, epoch: int | None = None, also_running: bool = False
    ) -> Withdrawn:
        """End jobs of one queue without a run, as the holder of its partition."""
        partition = self.schedulers.partition_of(jobs[0].queue)
        held = await self.epoch(partition) if epoch is None else epoch
        return await self.schedulers.fail(partition, held, jobs, reason=reason, also_running=also_running)

    async def dispatched(self, **fields: Any) -> DispatchedJob:
        """A job of a queue that has no others ready, dispatched."""
        job = await self.submit(**fields)
        batch = await self.dispatch(queue=job.queue)
        (found,) = [one for one in batch.jobs if one.id == job.id]
        return found

    async def again(self, job: JobRecord | DispatchedJob) -> DispatchedJob:
        """Let the job, which waits, go once more."""
        record = await self.read(job)
        if record.state is not JobState.QUEUED:
            await self.updated(record, JobState.QUEUED, due=await self.store.now_ms())
        (found,) = [one for one in (await self.dispatch(queue=record.queue)).jobs if one.id == record.id]
        return found

    async def report(self, job: DispatchedJob, kind: ReportKind, **fields: Any) -> AppliedReport:
        """What the report came to."""
        (applied,) = await self.schedulers.apply([report(job, kind, **fields)])
        return applied

    async def accepted(self, job: DispatchedJob, kind: ReportKind, **fields: Any) -> JobRecord:
        """The job after a report that counted."""
        applied = await self.report(job, kind, **fields)
        record = await self.read(job)
        assert applied == AppliedReport("accepted", record.state, record.queue, applied.has_dependents)
        return record

    async def make(self, state: JobState, **fields: Any) -> JobRecord:
        """A job in this state, in a queue of its own."""
        fields = {"queue": f"of {state}", **fields}
        return await _WAYS[state](self, fields)


def report(job: DispatchedJob, kind: ReportKind, **fields: Any) -> Report:
    """What a worker says of the job, with its token unless another one is given."""
    given: dict[str, Any] = {"id": job.id, "token": job.token, "attempt": job.attempt, "worker": "w1", **fields}
    return Report(kind=kind, **given)


def after(
    *upstream: JobRecord | DispatchedJob | NewJob | str, condition: DependencyCondition = "succeeded"
) -> JobDetail:
    """The detail of a job that waits for these."""
    found = [each if isinstance(each, str) else each.id for each in upstream]
    return JobDetail(depends_on=tuple(JobDependency(each, condition) for each in found))


def ids(jobs: Iterable[JobRecord | DispatchedJob | NewJob]) -> list[str]:
    return [job.id for job in jobs]


def _by_priority(lane: Lane) -> tuple[int, str]:
    return -lane.priority, lane.tenant


async def _waiting(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.updated(await _held(driver, fields), JobState.WAITING)


async def _held(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(held=True, **fields)


async def _scheduled(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(**{"due": HOUR, **fields})


async def _queued(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(**fields)


async def _dispatched(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.read(await driver.dispatched(**fields))


async def _running(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.accepted(await driver.dispatched(**fields), "started", started=await driver.store.now_ms())


async def _retrying(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    job = await driver.dispatched(**fields)
    return await driver.accepted(job, "retry", delay=HOUR, error=error("try again"))


async def _succeeded(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.accepted(await driver.dispatched(**fields), "succeeded", result=b"1")


async def _failed(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.accepted(await driver.dispatched(**fields), "failed", error=error("no"))


async def _cancelled(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.updated(await _held(driver, fields), JobState.CANCELLED, kind="cancel")


async def _expired(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.updated(await _held(driver, fields), JobState.EXPIRED)


async def _skipped(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.updated(await _waiting(driver, fields), JobState.SKIPPED)


async def _upstream_failed(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.updated(await _waiting(driver, fields), JobState.UPSTREAM_FAILED)


_Way = Callable[[JobDriver, dict[str, Any]], Awaitable[JobRecord]]

_WAYS: Final[dict[JobState, _Way]] = {
    JobState.WAITING: _waiting,
    JobState.HELD: _held,
    JobState.SCHEDULED: _scheduled,
    JobState.QUEUED: _queued,
    JobState.DISPATCHED: _dispatched,
    JobState.RUNNING: _running,
    JobState.RETRYING: _retrying,
    JobState.SUCCEEDED: _succeeded,
    JobState.FAILED: _failed,
    JobState.CANCELLED: _cancelled,
    JobState.EXPIRED: _expired,
    JobState.SKIPPED: _skipped,
    JobState.UPSTREAM_FAILED: _upstream_failed,
}
