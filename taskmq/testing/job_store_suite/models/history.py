"""Random histories of jobs: each step is chosen from the model, then applied to a store and to the model."""

import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    DispatchBatch,
    DispatchedJob,
    DueJob,
    HistoryEntry,
    JobDetail,
    JobRecord,
    JobUpdate,
    NewJob,
    Pick,
    RatedJob,
    ReturnedJob,
    partition_key,
)
from taskmq.contracts.stores import Lease
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.jobs.changes import Action, Decision, decide
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.limits import RateDemand
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store.values import shard_of
from taskmq.testing.job_store_suite.driver import HOUR, LONG, JobDriver, error, forged_token, later, new_id
from taskmq.testing.job_store_suite.models.claims import ClaimSteps

_QUEUES: Final = ("mail", "sms", "fax")
_REPORTS: Final = "taskmq.reports.suite.0"
_ACTIONS: Final[tuple[Action, ...]] = ("change", "cancel", "hold", "release", "retry")
_KINDS: Final[tuple[ReportKind, ...]] = (
    "started", "started", "succeeded", "failed", "retry", "retry", "snoozed", "expired", "cancelled", "refused",
    "interrupted", "detached", "held",
)  # fmt: skip
_FAILING: Final = frozenset({"failed", "retry", "refused", "snoozed", "held"})
_OPERATORS: Final = frozenset({"change", "cancel", "cancel_requested", "hold", "release", "retry"})
# Measured by the store's clock, which the model reads a moment earlier.
_TIMES: Final = ("due", "submitted", "dispatched", "finished")
_A_MOMENT: Final = 60_000


def _slow_rates() -> tuple[tuple[RateDemand, ...], ...]:
    """Return combinations of rates that do not recover during a test, with keys of their own."""
    plain = RateDemand(key=f"rate:{new_id(0)}", interval=LONG, burst=3)
    strict = RateDemand(key=f"rate:{new_id(0)}", interval=LONG, strict=True)
    return (plain,), (strict,), (plain, strict)


@dataclass
class JobHistory:
    """Applies one random history to a store and to the model, and compares them.

    Args:
        driver: the store that is compared with the model.
        others: more stores on the same database; each step is made by one of them.
    """

    dice: random.Random
    driver: JobDriver
    others: list[JobDriver]
    model: JobModel = field(default_factory=JobModel)
    epochs: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    of_model: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    sent: list[DispatchedJob] = field(default_factory=list[DispatchedJob])
    batches: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    reported: list[Report] = field(default_factory=list[Report])
    read: list[DueJob] = field(default_factory=list[DueJob])
    bodies: int = 0
    rates: tuple[tuple[RateDemand, ...], ...] = field(default_factory=_slow_rates)

    def __post_init__(self) -> None:
        self.claims = ClaimSteps(self.model)

    async def step(self, where: str) -> None:
        """Make one step on both, and compare everything observable."""
        steps: tuple[tuple[int, Callable[[], Coroutine[Any, Any, set[str]]]], ...] = (
            (5, self._submit),
            (6, self._act),
            (2, self._write),
            (7, self._dispatch),
            (9, self._report),
            (3, self._fire),
            (1, self._undispatch),
            (2, self._dispatch_again),
            (1, self._fail),
            (2, self._take_over),
            (3, self._confirm),
            (4, self._release),
            (3, self._put_behind),
            (3, self._open_gates),
            (3, self._take_starts),
            (8, self._take_claims),
            (3, self._open_claims),
            (3, self._resume),
            (2, self._repeat),
        )
        chosen = self.dice.choices([do for _, do in steps], weights=[weight for weight, _ in steps])[0]
        where = f"{where}: {chosen.__name__}"
        self.model.now = await self._pick_driver().store.now_ms()
        try:
            touched = await chosen()
            await self._compare(touched)
        except AssertionError as failure:
            raise AssertionError(f"{where}: {failure}") from failure

    async def _submit(self) -> set[str]:
        jobs = [await self._new() for _ in range(self.dice.choice((1, 1, 2, 4)))]
        # A job that was due when created is also due in the model.
        self.model.now = await self._pick_driver().store.now_ms()
        answers = await self._pick_driver().store.submit(jobs)
        expected = self.model.submit(jobs)
        assert answers == expected, f"{answers} instead of {expected}"
        return {answer.id for answer in answers}

    async def _new(self) -> NewJob:
        dice = self.dice
        self.bodies += 1
        has_key = dice.random() < 0.4
        tenant = dice.choice(("", "acme"))
        job = await self.driver.new(
            tenant=tenant,
            key=f"k{dice.randrange(8)}" if has_key else None,
            fingerprint=bytes([dice.randrange(2)]) if has_key else b"",
            task=dice.choice(("a.x", "a_x", "b")),
            queue=dice.choice(_QUEUES),
            priority=dice.choice((0, 4, 9)),
            due=dice.choice((-HOUR, 0, 0, HOUR, 2 * HOUR)),
            expires=dice.choice((None, None, None, -1, 9 * HOUR)),
            held=dice.random() < 0.1,
            body=b'{"task":"b%d"}' % self.bodies,
            detail=self._detail(tenant, has_key=has_key),
        )
        return replace(job, line=self.claims.line_of(job.id))

    def _detail(self, tenant: str, *, has_key: bool) -> JobDetail | None:
        dice = self.dice
        labels = {"team": dice.choice("ab")} if dice.random() < 0.3 else {}
        # A rejected job does not reserve its key: of two jobs in one call, a store may answer either first.
        known = [job.id for job in self.model.jobs.values() if not has_key or job.tenant == tenant]
        depends_on: list[JobDependency] = []
        if known and dice.random() < 0.4:
            # Only one dependency has a condition that can fail, so the reason is certain.
            first, *others = dice.sample(known, k=min(dice.choice((1, 1, 2, 3)), len(known)))
            depends_on = [JobDependency(first, dice.choice(("succeeded", "succeeded", "ended", "failed")))]
            depends_on += [JobDependency(other, "ended") for other in others]
        detail = JobDetail(labels=labels, depends_on=tuple(depends_on))
        return None if detail == JobDetail() else detail

    async def _act(self) -> set[str]:
        """Make an operator's change, based on the job's current or earlier state."""
        if (job := self._pick_live()) is None:
            return set()
        action, now = self.dice.choice(_ACTIONS), self.model.now
        due = now + self.dice.choice((-60_000, HOUR, 3 * HOUR)) if action == "change" else job.due
        decision = decide(action, job.state, due=due, now=now)
        if not isinstance(decision, Decision):
            return set()
        if decision.is_request:
            update = self._update(job, job.state, kind="cancel_requested", cancel_requested="not needed")
        elif action == "change":
            update = self._update(job, decision.state, kind="change", due=due, **self._changes())
        elif decision.is_due:
            update = self._update(job, decision.state, kind="retry", due=now)
        else:
            update = self._update(job, decision.state, kind=action)
        return await self._apply_update(update)

    async def _write(self) -> set[str]:
        """Make any change, including forbidden ones and those for another version."""
        if (job := self._pick_live()) is None:
            return set()
        stale = replace(job, version=job.version - self.dice.choice((0, 0, 1)))
        after = self.dice.choice(list(JobState))
        # A queued job is always due.
        due = {"due": self.model.now} if after is JobState.QUEUED else {}
        return await self._apply_update(self._update(stale, after, kind="change", **due))

    async def _resume(self) -> set[str]:
        """Resume an ended job or try a forbidden one, behind its live dependencies."""
        if (job := self._pick_ended()) is None:
            return set()
        before = () if job.detail is None else job.detail.depends_on
        depends_on = tuple(each for each in before if self.model.jobs[each.id].state not in TERMINAL)
        stale = replace(job, version=job.version - self.dice.choice((0, 0, 0, 1)))
        self.bodies += 1
        update = self._update(
            stale,
            JobState.QUEUED,
            kind="retry",
            due=self.model.now,
            body=b'{"task":"b%d"}' % self.bodies,
            depends_on=depends_on,
        )
        return await self._apply_update(update)

    async def _repeat(self) -> set[str]:
        """Repeat an ended job by another job."""
        if (job := self._pick_ended()) is None:
            return set()
        copy = await self._new()
        copy = replace(copy, tenant=job.tenant, detail=JobDetail(retry_of=job.id))
        stale = replace(job, version=job.version - self.dice.choice((0, 0, 0, 1)))
        update = self._update(stale, job.state, kind="retry")
        self.model.now = await self._pick_driver().store.now_ms()
        answer = await self._pick_driver().store.retry(copy, update)
        before = dict(self.model.jobs.items())
        expected = self.model.retry(copy, update)
        assert answer == expected, f"{update}: {answer} instead of {expected}"
        return {job.id, *self._changed_since(before)}

    def _update(self, job: JobRecord, after: JobState, **fields: Any) -> JobUpdate:
        return JobUpdate(id=job.id, before=job.state, version=job.version, after=after, by="ann", **fields)

    def _changes(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in (
                ("priority", self.dice.choice((0, 4, 9))),
                ("queue", self.dice.choice(_QUEUES)),
                ("body", b'{"task":"changed"}'),
                ("expires", self.dice.choice((None, self.model.now + 9 * HOUR))),
            )
            if self.dice.random() < 0.4
        }

    async def _apply_update(self, update: JobUpdate) -> set[str]:
        changed = await self._pick_driver().store.update(update)
        before = dict(self.model.jobs.items())
        expected = self.model.update(update)
        assert (changed is None) is (expected is None), f"{update}: {changed} instead of {expected}"
        if changed is not None and expected is not None:
            assert changed.reattached == expected.reattached, f"{update}"
            assert replace(changed, reattached=0) == await self._pick_driver().store.get(update.id), f"{update}"
        return {update.id, *self._changed_since(before)}

    def _changed_since(self, before: Mapping[str, JobRecord]) -> set[str]:
        """Return the ids of the model's jobs that are new or changed."""
        return {job_id for job_id, job in self.model.jobs.items() if before.get(job_id) != job}

    async def _dispatch(self) -> set[str]:
        queue = self.dice.choice(_QUEUES)
        partition = self.model_partition(queue)
        await self._hold(partition)
        # Occasionally the epoch of an earlier holder.
        nth = self.dice.choice((-1, -1, -1, 0))
        lanes = [lane for lane in self._lanes(queue) if self.dice.random() < 0.8]
        ready = {lane: self.model.ready(lane) for lane in lanes}
        picks = [Pick(lane, self._count(jobs)) for lane, jobs in ready.items()]
        batch = await self._pick_driver().schedulers.dispatch(partition, self.epochs[partition][nth], picks)
        expected = self.model.dispatch(partition, self.of_model[partition][nth], picks)
        assert (batch is None) is (expected is None), f"{batch} instead of {expected}"
        if batch is not None and expected is not None:
            self._adopt_batch(batch, expected)
        return {job.id for jobs in ready.values() for job in jobs}

    async def _put_behind(self) -> set[str]:
        """Put some live jobs behind gates, if they are ready."""
        partition = self.model_partition(queue := self.dice.choice(_QUEUES))
        await self._hold(partition)
        nth = self.dice.choice((-1, -1, -1, 0))
        there = [job.id for job in self.model.jobs.values() if job.queue == queue and job.state not in TERMINAL]
        some = self.dice.sample(there, k=min(3, len(there)))
        gates = {job: self.dice.choice((self.claims.gate_of(job), "k", "l")) for job in some}
        await self._pick_driver().schedulers.put_behind(partition, self.epochs[partition][nth], gates)
        self.model.put_behind(partition, self.of_model[partition][nth], gates)
        return await self._compare_gates(set(gates))

    async def _open_gates(self) -> set[str]:
        partition = self.model_partition(self.dice.choice(_QUEUES))
        await self._hold(partition)
        nth = self.dice.choice((-1, -1, -1, 0))
        behind, gates = set(self.model.gates), self.dice.choice(({"k": 1000}, {"k": 1000, "l": 1000}))
        assert await self._pick_driver().schedulers.closed_gates(partition) == self.model.closed_gates(partition)
        opened = await self._pick_driver().schedulers.open_gates(partition, self.epochs[partition][nth], gates)
        expected = self.model.open_gates(partition, self.of_model[partition][nth], gates)
        assert sorted(opened) == sorted(expected), f"{opened} instead of {expected}"
        return await self._compare_gates(behind)

    async def _take_starts(self) -> set[str]:
        """Request starts of some dispatched jobs under rates that do not recover during the test."""
        partition = self.model_partition(queue := self.dice.choice(_QUEUES))
        await self._hold(partition)
        nth = self.dice.choice((-1, -1, -1, 0))
        sent = [job for job in self.sent if job.queue == queue]
        jobs = [
            RatedJob(job.id, job.token, self.dice.choice(self.rates), is_sure=self.dice.random() < 0.2)
            for job in {job.id: job for job in self.dice.sample(sent, k=min(3, len(sent)))}.values()
        ]
        taken = await self._pick_driver().schedulers.take_starts(
            partition, self.epochs[partition][nth], jobs, lead=0.1
        )
        expected = self.model.take_starts(partition, self.of_model[partition][nth], jobs, lead=0.1)
        assert (taken is None) is (expected is None), f"{taken} instead of {expected}"
        if taken is not None and expected is not None:
            assert taken.instants.keys() == expected.instants.keys(), f"{taken} instead of {expected}"
            assert taken.waiting == expected.waiting, f"{taken} instead of {expected}"
        return await self._compare_gates({job.id for job in jobs})

    async def _take_claims(self) -> set[str]:
        queue, jobs = self.dice.choice(_QUEUES), self.dice.sample(self.sent, k=min(3, len(self.sent)))
        # Mostly those that are still dispatched.
        jobs += [job for job in self.sent if self.model.jobs[job.id].state is JobState.DISPATCHED]
        jobs = list({job.id: job for job in jobs if job.queue == queue}.values())
        partition, epoch, of_model = await self._holder_of(jobs)
        schedulers = self._pick_driver().schedulers
        touched = await self.claims.take(schedulers, jobs, partition=partition, epoch=epoch, of_model=of_model)
        return await self._compare_gates(touched)

    async def _open_claims(self) -> set[str]:
        return await self._compare_gates(await self.claims.open(self._pick_driver().schedulers))

    async def _compare_gates(self, jobs: set[str]) -> set[str]:
        for job in sorted(jobs):
            seen = await self._pick_driver().schedulers.gate_of(job)
            assert seen == self.model.gates.get(job, ""), f"{job} is behind {seen!r}"
        return jobs

    def _count(self, jobs: list[JobRecord]) -> int:
        # A store with a finer clock may order two jobs of one millisecond differently.
        dues = [job.due for job in jobs]
        count = self.dice.randrange(1, 4)
        return count if count >= len(dues) or dues[count - 1] != dues[count] else len(dues)

    def _adopt_batch(self, batch: DispatchBatch, expected: DispatchBatch) -> None:
        """Check that both dispatched the same jobs, and copy the store's tokens to the model."""
        dispatched = {job.id: job for job in batch.jobs}
        for job in expected.jobs:
            assert job.id in dispatched, f"{job.id} was not dispatched"
            token = dispatched[job.id].token
            assert token >> 32 == job.token >> 32
            assert replace(job, token=token) == dispatched[job.id]
            self.model.set_token(expected.id, job.id, token)
        assert len(dispatched) == len(expected.jobs)
        self.sent += batch.jobs
        self.batches.append((batch.id, expected.id))

    async def _report(self) -> set[str]:
        """Report on current and earlier dispatches, some of them twice."""
        if not self.sent:
            return set()
        reports = [self._pick_report() for _ in range(self.dice.choice((1, 1, 2, 5)))]
        if self.reported and self.dice.random() < 0.3:
            reports.append(self.dice.choice(self.reported))
        self.dice.shuffle(reports)
        applied = await self._pick_driver().schedulers.apply(reports, came_by=_REPORTS)
        expected = self.model.apply(reports, came_by=_REPORTS)
        if len({each.id for each in reports}) == len(reports):
            assert applied == expected, f"{reports}: {applied} instead of {expected}"
        outcomes = [each.outcome for each in applied]
        assert outcomes == [each.outcome for each in expected], f"{reports}: {outcomes}"
        self.reported += reports
        return {each.id for each in reports}

    def _pick_report(self) -> Report:
        # Recent ones more often than earlier ones.
        job = self.dice.choice(self.sent[-6:] if self.dice.random() < 0.8 else self.sent)
        token = forged_token(job.token) if self.dice.random() < 0.1 else job.token
        if self.dice.random() < 0.03:
            token = later(job.token)
        # Half of the other tokens belong to a forgotten dispatch, half are forged.
        is_proven = token == job.token or self.dice.random() < 0.5
        started = self.model.now - 5_000 if self.dice.random() < 0.8 else None
        kind = self.dice.choice(_KINDS)
        return Report(
            id=job.id,
            token=token,
            proof=self.model.report_keys[0].prove(job.id, token, _REPORTS) if is_proven else "",
            kind=kind,
            attempt=job.attempt,
            worker=self.dice.choice(("w1", "w2")),
            started=started,
            ran=self.dice.randrange(1_000),
            delay=self.dice.choice((0, HOUR)),
            result=b"1" if kind == "succeeded" else b"",
            error=None if kind not in _FAILING else error("no", self.dice.choice(("A", SUSPENDED, MISMATCH))),
        )

    async def _fire(self) -> set[str]:
        partition = self.dice.randrange(self.model.partitions)
        await self._hold(partition)
        now = await self._pick_driver().store.now_ms()
        due = await self._pick_driver().schedulers.due(partition, until=now + 1, limit=5)
        self.read = [*self.read, *due][-20:]
        chosen = [timer for timer in self.read if timer.shard % self.model.partitions == partition]
        nth = self.dice.choice((-1, -1, -1, 0))
        lanes = await self._pick_driver().schedulers.fire(partition, self.epochs[partition][nth], chosen)
        expected = self.model.fire(partition, self.of_model[partition][nth], chosen)
        assert lanes == expected, f"{lanes} instead of {expected}"
        return {timer.id for timer in chosen}

    async def _undispatch(self) -> set[str]:
        jobs, delay = self._pick_sent(), self.dice.choice((0.0, 0.0, LONG))
        partition, epoch, of_model = await self._holder_of(jobs)
        seen = await self._pick_driver().schedulers.undispatch(partition, epoch, jobs, delay=delay, reason="no queue")
        expected = self.model.undispatch(partition, of_model, jobs, delay=delay, reason="no queue")
        assert seen == expected, f"{seen} instead of {expected}"
        return {job.id for job in jobs}

    async def _dispatch_again(self) -> set[str]:
        jobs, crashes = self._pick_sent(), self.dice.choice((0, 0, 1))
        partition, epoch, of_model = await self._holder_of(jobs)
        returned = [ReturnedJob(id=job.id, token=job.token, crashes=crashes, reason="gone") for job in jobs]
        batch = await self._pick_driver().schedulers.dispatch_again(partition, epoch, returned)
        expected = self.model.dispatch_again(partition, of_model, returned)
        assert (batch is None) is (expected is None), f"{batch} instead of {expected}"
        if batch is not None and expected is not None:
            self._adopt_batch(batch, expected)
        return {job.id for job in jobs}

    async def _fail(self) -> set[str]:
        jobs = self._pick_sent()
        partition, epoch, of_model = await self._holder_of(jobs)
        also = len(self.reported) % 2 == 0
        seen = await self._pick_driver().schedulers.fail(
            partition, epoch, jobs, reason="too large", also_running=also
        )
        expected = self.model.fail(partition, of_model, jobs, reason="too large", also_running=also)
        assert seen == expected, f"{seen} instead of {expected}"
        return {job.id for job in jobs}

    async def _holder_of(self, jobs: list[DispatchedJob]) -> tuple[int, int, int]:
        """Return the partition of the first job with an epoch, mostly the current one, and the model's epoch."""
        partition = self.model_partition(jobs[0].queue if jobs else _QUEUES[0])
        await self._hold(partition)
        nth = 0 if len(self.reported) % 4 == 0 else -1
        return partition, self.epochs[partition][nth], self.of_model[partition][nth]

    def _pick_sent(self) -> list[DispatchedJob]:
        chosen = self.dice.sample(self.sent[-10:], k=min(2, len(self.sent)))
        # A scheduler never names a job twice.
        return list({job.id: job for job in chosen}.values())

    async def _confirm(self) -> set[str]:
        if self.batches:
            number, of_model = self.dice.choice(self.batches)
            if self.dice.random() < 0.7:
                await self._pick_driver().schedulers.confirm([number])
                self.model.confirm([of_model])
            else:
                await self._pick_driver().schedulers.forget([number])
                self.model.forget([of_model])
        return set()

    async def _take_over(self) -> set[str]:
        partition = self.model_partition(self.dice.choice(_QUEUES))
        await self._hold(partition)
        if self.dice.random() < 0.3 and len(self.epochs[partition]) > 1:
            assert await self._pick_driver().schedulers.take_over(partition, self.epochs[partition][0]) == []
            return set()
        await self._next_holder(partition)
        found = await self._pick_driver().schedulers.take_over(partition, self.epochs[partition][-1])
        expected = self.model.take_over(partition, self.of_model[partition][-1])
        numbers = {of_model: number for number, of_model in self.batches}
        seen = {batch.id: (batch.confirmed, sorted(job.id for job in batch.jobs)) for batch in found}
        wanted = {numbers[batch.id]: (batch.confirmed, sorted(job.id for job in batch.jobs)) for batch in expected}
        assert seen == wanted, f"{seen} instead of {wanted}"
        return set()

    async def _release(self) -> set[str]:
        """Settle ends for dependents, and the ends that follow."""
        waiting = {job.id for job in self.model.jobs.values() if self.model.unmet(job.id)}
        driver = self._pick_driver()
        queues = await driver.release()
        expected: set[str] = set()
        while True:
            released = self.model.release_dependents()
            expected |= released.queues
            if not released.is_more:
                break
        assert queues == expected, f"{queues} instead of {expected}"
        for job_id in sorted(waiting):
            assert await driver.store.unmet(job_id) == self.model.unmet(job_id), job_id
        return waiting

    def model_partition(self, queue: str) -> int:
        """Return the partition that the store assigns, and assign it in the model."""
        partition = self.driver.schedulers.partition_of(queue)
        self.model.placed[queue] = partition
        return partition

    async def _hold(self, partition: int) -> None:
        if partition not in self.epochs:
            self.epochs[partition], self.of_model[partition] = [], []
            await self._next_holder(partition)

    async def _next_holder(self, partition: int) -> None:
        self.epochs[partition].append(await self._pick_driver().next_epoch(partition))
        key = partition_key(partition)
        if self.of_model[partition]:
            self.model.leases.release(key, token=self.of_model[partition][-1])
        taken = self.model.leases.acquire(key, owner="driver", seconds=LONG, now=self.model.now)
        assert not isinstance(taken, Lease)
        self.of_model[partition].append(taken)

    def _pick_driver(self) -> JobDriver:
        return self.dice.choice(self.others)

    def _pick_live(self) -> JobRecord | None:
        live = [job for job in self.model.jobs.values() if job.state not in TERMINAL]
        return self.dice.choice(live) if live else None

    def _pick_ended(self) -> JobRecord | None:
        ended = [job for job in self.model.jobs.values() if job.state in TERMINAL]
        return self.dice.choice(ended) if ended else None

    def _lanes(self, queue: str) -> list[Any]:
        return [lane for lane in self.model.lanes(self.model_partition(queue)) if lane.queue == queue]

    async def _compare(self, touched: set[str]) -> None:
        reader = self._pick_driver()
        for job_id in sorted(touched):
            await self._compare_job(reader, job_id)
        for queue in _QUEUES:
            assert await reader.lanes(queue) == sorted(
                self._lanes(queue), key=lambda lane: (-lane.priority, lane.tenant)
            )
        timers = sorted(
            DueJob(job.due, job.id, shard_of(job.id))
            for job in self.model.jobs.values()
            if job.state in (JobState.SCHEDULED, JobState.RETRYING)
        )
        assert await reader.timers() == timers
        await self._compare_lists(reader)

    async def _compare_job(self, reader: JobDriver, job_id: str) -> None:
        known, seen = self.model.jobs.get(job_id), await reader.store.get(job_id)
        if known is None or seen is None:
            assert known is seen, f"{job_id}: {seen} instead of {known}"
            return
        # A store may write once for two reports applied together.
        assert seen.version <= known.version, f"{seen} instead of {known}"
        adopted = replace(known, version=seen.version, **_undefined_fields(known, seen))
        for name in _TIMES:
            known_time, seen_time = getattr(known, name), getattr(seen, name)
            assert (known_time is None) is (seen_time is None), f"{name} of {seen} instead of {known}"
            if known_time is not None:
                assert abs(known_time - seen_time) <= _A_MOMENT or _is_due_undefined(known, name), (
                    f"{name} of {seen}, not {known}"
                )
                adopted = replace(adopted, **{name: seen_time})
        assert seen == adopted, f"{seen} instead of {adopted}"
        self.model.jobs[job_id] = seen
        events = [_event_facts(event) for event in await reader.store.events(job_id) if event.kind in _OPERATORS]
        assert events == [_event_facts(event) for event in self.model.events(job_id) if event.kind in _OPERATORS]
        attempts = [attempt.attempt for attempt in await reader.store.attempts(job_id)]
        assert attempts == [attempt.attempt for attempt in self.model.attempts(job_id)]

    async def _compare_lists(self, reader: JobDriver) -> None:
        which = self.dice.choice(
            (
                JobFilter(),
                JobFilter(tenant="acme"),
                JobFilter(states=UNDERWAY),
                JobFilter(states=TERMINAL, task_prefix="a_"),
                JobFilter(queues=("mail", "sms"), states=frozenset({JobState.QUEUED})),
                JobFilter(labels=(("team", "a"),)),
                JobFilter(min_attempt=2, tenant=""),
            )
        )
        expected = [job.id for job in self.model.list_jobs(which, limit=10_000).jobs]
        assert await reader.store.count_jobs(which) == len(expected), which
        page = await reader.store.list_jobs(which, limit=5)
        if not page.is_bounded:
            assert [job.id for job in page.jobs] == expected[:5], which
            assert (page.after is None) is (len(expected) <= 5), which


def _undefined_fields(known: JobRecord, seen: JobRecord) -> dict[str, Any]:
    """Return the fields that the contract leaves open in this state, as observed."""
    fields: dict[str, Any] = {}
    if known.state not in TERMINAL and known.state is not JobState.RUNNING:
        fields["started"] = seen.started
    if known.state in (JobState.EXPIRED, JobState.CANCELLED, JobState.FAILED) and known.error != seen.error:
        is_reason = known.error is None or not known.error.type_name
        if is_reason or known.cancel_requested is not None:
            fields["error"] = seen.error
    if known.state not in TERMINAL and known.state is not JobState.RETRYING:
        fields["error"] = seen.error
    return fields


def _is_due_undefined(known: JobRecord, name: str) -> bool:
    """Return whether the contract lets a requeued job keep its due time or get the current one."""
    return name == "due" and known.state is JobState.QUEUED


def _event_facts(event: HistoryEntry) -> tuple[Any, ...]:
    return event.kind, event.state, event.by, event.note
