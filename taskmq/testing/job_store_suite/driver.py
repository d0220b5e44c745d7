"""Driver of a store: short forms of the operations that tests use."""

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

HOUR: Final = 3_600_000
LONG: Final = 3_600.0
QUEUE: Final = "mail"
BODY: Final = b'{"task":"send_mail","args":[1]}'

REPORT_KINDS: Final[tuple[ReportKind, ...]] = (
    "started", "succeeded", "failed", "retry", "snoozed", "expired", "cancelled", "refused", "interrupted",
    "detached", "alive", "held",
)  # fmt: skip
"""Kinds of reports that change a job."""
END_KINDS: Final[tuple[ReportKind, ...]] = ("succeeded", "failed", "expired", "cancelled")
"""Kinds of reports that end a job."""

# Ids of one millisecond are ordered by creation, and those of two processes differ.
_order = itertools.count(int.from_bytes(os.urandom(4)) << 12)


def new_id(now_ms: int) -> str:
    """Return an id of this instant, larger than earlier ones of the same instant."""
    return new_job_id(now_ms, next(_order).to_bytes(10))


def error(text: str, kind: str = "ValueError") -> ErrorRecord:
    return ErrorRecord(type_name=kind, message=text, traceback=f"Traceback: {text}")


def forged_token(token: int) -> int:
    """Return a token with the same dispatch number that was never issued."""
    return token ^ 1


def later(token: int) -> int:
    """Return the token of a later dispatch that this store has not recorded."""
    return next_token(token, 7)


class JobDriver:
    """Submits, changes, dispatches and reports jobs, and reads them back.

    Attributes:
        store: the store.
        schedulers: the store's operations for schedulers.
    """

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.schedulers: DispatchStore = store.dispatching
        self._epochs: dict[int, int] = {}

    async def new(self, **fields: Any) -> NewJob:
        """Return a job that is not submitted yet; `due` and `expires` are ms from the store's now."""
        now = await self.store.now_ms()
        for name in ("due", "expires"):
            if fields.get(name) is not None:
                fields[name] = max(0, now + fields[name])
        given: dict[str, Any] = {"id": new_id(now), "task": "send_mail", "queue": QUEUE, "body": BODY, **fields}
        return NewJob(**given)

    async def submit(self, **fields: Any) -> JobRecord:
        """Submit a new job and return its record."""
        job = await self.new(**fields)
        (submitted,) = await self.store.submit([job])
        assert submitted.is_new
        return await self.read(job.id)

    async def try_submit(self, **fields: Any) -> Submitted:
        """Submit one job and return the outcome."""
        (submitted,) = await self.store.submit([await self.new(**fields)])
        return submitted

    async def submit_many(self, count: int, **fields: Any) -> list[JobRecord]:
        """Submit several jobs at once and return their records."""
        jobs = [await self.new(**fields) for _ in range(count)]
        await self.store.submit(jobs)
        return [await self.read(job.id) for job in jobs]

    async def read(self, job: JobRecord | DispatchedJob | str) -> JobRecord:
        """Return the job's current record."""
        found = await self.store.get(job if isinstance(job, str) else job.id)
        assert found is not None, f"job {job} is gone"
        return found

    async def state(self, job: JobRecord | DispatchedJob | str) -> JobState:
        return (await self.read(job)).state

    async def update(self, job: JobRecord, after: JobState | None = None, **fields: Any) -> JobRecord | None:
        """Change the job from the state in `job` to `after`, by default the same state."""
        after = job.state if after is None else after
        given: dict[str, Any] = {"kind": "change", **fields}
        return await self.store.update(
            JobUpdate(id=job.id, before=job.state, version=job.version, after=after, **given)
        )

    async def expect_update(self, job: JobRecord, after: JobState | None = None, **fields: Any) -> JobRecord:
        """Change the job, expect success, and return its new record."""
        changed = await self.update(job, after, **fields)
        assert changed is not None, f"{job.state} -> {after or job.state} was rejected"
        assert changed == await self.read(job)
        assert changed.version == job.version + 1
        return changed

    async def request_cancel(self, job: JobRecord, reason: str = "not needed") -> JobRecord:
        """Request the cancellation of a running job."""
        return await self.expect_update(job, cancel_requested=reason, kind="cancel_requested")

    async def release(self) -> set[str]:
        """Settle all ended jobs for their dependents; return the queues with newly ready jobs."""
        queues: set[str] = set()
        while True:
            released = await self.schedulers.release_dependents()
            queues |= released.queues
            if not released.is_more:
                return queues

    async def epoch(self, partition: int) -> int:
        """Return the epoch of the partition, which this driver holds from now on; `next_epoch` changes it."""
        if partition not in self._epochs:
            self._epochs[partition] = await self.next_epoch(partition)
        return self._epochs[partition]

    async def next_epoch(self, partition: int) -> int:
        """Take the partition from its holder and return the new epoch."""
        leases, key = self.schedulers.leases, partition_key(partition)
        answer = await leases.acquire(key, owner="driver", seconds=LONG)
        while isinstance(answer, Lease):
            # Another writer of the test may acquire it first.
            await leases.release(key, token=answer.token)
            answer = await leases.acquire(key, owner="driver", seconds=LONG)
        self._epochs[partition] = answer
        return answer

    async def lanes(self, queue: str = QUEUE) -> list[Lane]:
        """Return the queue's lanes with ready jobs, in dispatch order."""
        found = await self.schedulers.lanes(self.schedulers.partition_of(queue))
        assert len(found) == len(set(found))
        return sorted((lane for lane in found if lane.queue == queue), key=_by_priority)

    async def timers(self) -> list[DueJob]:
        """Return the timers of all partitions, earliest first."""
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
        """Dispatch the picks, by default all ready jobs of the queue; None if nothing was dispatched."""
        partition = self.schedulers.partition_of(queue)
        if epoch is None:
            epoch = await self.epoch(partition)
        chosen = picks or [Pick(lane, 1_000) for lane in await self.lanes(queue)]
        return await self.schedulers.dispatch(partition, epoch, chosen)

    async def dispatch(self, *picks: Pick, queue: str = QUEUE) -> DispatchBatch:
        """Dispatch a batch with at least one job."""
        batch = await self.try_dispatch(*picks, queue=queue)
        assert batch is not None, f"nothing was dispatched of {queue}"
        return batch

    async def undispatch(
        self, *jobs: DispatchedJob, epoch: int | None = None, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        """Withdraw jobs of one queue, as the holder of its partition."""
        partition = self.schedulers.partition_of(jobs[0].queue if jobs else QUEUE)
        held = await self.epoch(partition) if epoch is None else epoch
        return await self.schedulers.undispatch(partition, held, jobs, delay=delay, reason=reason)

    async def fail(
        self, *jobs: DispatchedJob, reason: str, epoch: int | None = None, also_running: bool = False
    ) -> Withdrawn:
        """End jobs of one queue without a run, as the holder of its partition."""
        partition = self.schedulers.partition_of(jobs[0].queue if jobs else QUEUE)
        held = await self.epoch(partition) if epoch is None else epoch
        return await self.schedulers.fail(partition, held, jobs, reason=reason, also_running=also_running)

    async def dispatch_new(self, **fields: Any) -> DispatchedJob:
        """Submit and dispatch a job of a queue without other ready jobs."""
        job = await self.submit(**fields)
        batch = await self.dispatch(queue=job.queue)
        (found,) = [one for one in batch.jobs if one.id == job.id]
        return found

    async def again(self, job: JobRecord | DispatchedJob) -> DispatchedJob:
        """Dispatch a waiting job again."""
        record = await self.read(job)
        if record.state is not JobState.QUEUED:
            await self.expect_update(record, JobState.QUEUED, due=await self.store.now_ms())
        (found,) = [one for one in (await self.dispatch(queue=record.queue)).jobs if one.id == record.id]
        return found

    async def report(self, job: DispatchedJob, kind: ReportKind, **fields: Any) -> AppliedReport:
        """Apply a report and return the outcome."""
        (applied,) = await self.schedulers.apply([report(job, kind, **fields)])
        return applied

    async def expect_accepted(self, job: DispatchedJob, kind: ReportKind, **fields: Any) -> JobRecord:
        """Apply a report, expect that it counts, and return the job's new record."""
        applied = await self.report(job, kind, **fields)
        record = await self.read(job)
        assert applied == AppliedReport("accepted", record.state, record.queue, applied.has_dependents, applied.run)
        return record

    async def make(self, state: JobState, **fields: Any) -> JobRecord:
        """Create a job in this state, in its own queue."""
        fields = {"queue": f"of {state}", **fields}
        return await _WAYS[state](self, fields)


def report(job: JobRecord | DispatchedJob, kind: ReportKind, **fields: Any) -> Report:
    """Return a worker's report about the job, with its token unless another is given."""
    given: dict[str, Any] = {"id": job.id, "token": job.token, "attempt": job.attempt, "worker": "w1", **fields}
    return Report(kind=kind, **given)


def after(
    *upstream: JobRecord | DispatchedJob | NewJob | str, condition: DependencyCondition = "succeeded"
) -> JobDetail:
    """Return the detail of a job that waits for these."""
    found = [each if isinstance(each, str) else each.id for each in upstream]
    return JobDetail(depends_on=tuple(JobDependency(each, condition) for each in found))


def ids(jobs: Iterable[JobRecord | DispatchedJob | NewJob]) -> list[str]:
    return [job.id for job in jobs]


def _by_priority(lane: Lane) -> tuple[int, str]:
    return -lane.priority, lane.tenant


async def _make_waiting(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_update(await _make_held(driver, fields), JobState.WAITING)


async def _make_held(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(held=True, **fields)


async def _make_scheduled(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(**{"due": HOUR, **fields})


async def _make_queued(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.submit(**fields)


async def _make_dispatched(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.read(await driver.dispatch_new(**fields))


async def _make_running(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_accepted(
        await driver.dispatch_new(**fields), "started", started=await driver.store.now_ms()
    )


async def _make_retrying(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    job = await driver.dispatch_new(**fields)
    return await driver.expect_accepted(job, "retry", delay=HOUR, error=error("try again"))


async def _make_succeeded(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_accepted(await driver.dispatch_new(**fields), "succeeded", result=b"1")


async def _make_failed(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_accepted(await driver.dispatch_new(**fields), "failed", error=error("no"))


async def _make_cancelled(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_update(await _make_held(driver, fields), JobState.CANCELLED, kind="cancel")


async def _make_expired(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_update(await _make_held(driver, fields), JobState.EXPIRED)


async def _make_skipped(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_update(await _make_waiting(driver, fields), JobState.SKIPPED)


async def _make_upstream_failed(driver: JobDriver, fields: dict[str, Any]) -> JobRecord:
    return await driver.expect_update(await _make_waiting(driver, fields), JobState.UPSTREAM_FAILED)


_Way = Callable[[JobDriver, dict[str, Any]], Awaitable[JobRecord]]

_WAYS: Final[dict[JobState, _Way]] = {
    JobState.WAITING: _make_waiting,
    JobState.HELD: _make_held,
    JobState.SCHEDULED: _make_scheduled,
    JobState.QUEUED: _make_queued,
    JobState.DISPATCHED: _make_dispatched,
    JobState.RUNNING: _make_running,
    JobState.RETRYING: _make_retrying,
    JobState.SUCCEEDED: _make_succeeded,
    JobState.FAILED: _make_failed,
    JobState.CANCELLED: _make_cancelled,
    JobState.EXPIRED: _make_expired,
    JobState.SKIPPED: _make_skipped,
    JobState.UPSTREAM_FAILED: _make_upstream_failed,
}


def without_event_fields(job: JobRecord) -> dict[str, Any]:
    """Return the record without fields that a store may change when it writes an event."""
    return {name: getattr(job, name) for name in job.__struct_fields__ if name != "version"}
