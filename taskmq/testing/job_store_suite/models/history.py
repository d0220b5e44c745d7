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
    JobDetail,
    JobRecord,
    JobUpdate,
    Pick,
    RatedJob,
    ReturnedJob,
)
from taskmq.model.jobs.changes import Action, Decision, decide
from taskmq.model.jobs.reports import Report
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store.values import shard_of
from taskmq.testing.job_store_suite.driver import HOUR, LONG, JobDriver
from taskmq.testing.job_store_suite.models.claims import ClaimSteps
from taskmq.testing.job_store_suite.models.comparison import compare_job, compare_list
from taskmq.testing.job_store_suite.models.holders import Holders
from taskmq.testing.job_store_suite.models.random_values import QUEUES, REPORTS, RandomValues

_ACTIONS: Final[tuple[Action, ...]] = ("change", "cancel", "hold", "release", "retry")


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
    sent: list[DispatchedJob] = field(default_factory=list[DispatchedJob])
    batches: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    reported: list[Report] = field(default_factory=list[Report])
    read: list[DueJob] = field(default_factory=list[DueJob])

    def __post_init__(self) -> None:
        self.claims = ClaimSteps(self.model)
        self.holders = Holders(self.dice, self.others, self.model)
        self.values = RandomValues(self.dice, self.driver, self.model, self.claims)

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
        jobs = [await self.values.new_job() for _ in range(self.dice.choice((1, 1, 2, 4)))]
        # A job that was due when created is also due in the model.
        self.model.now = await self._pick_driver().store.now_ms()
        answers = await self._pick_driver().store.submit(jobs)
        expected = self.model.submit(jobs)
        assert answers == expected, f"{answers} instead of {expected}"
        return {answer.id for answer in answers}

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
            update = self._update(job, decision.state, kind="change", due=due, **self.values.changes())
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
        update = self._update(
            stale,
            JobState.QUEUED,
            kind="retry",
            due=self.model.now,
            body=self.values.body(),
            depends_on=depends_on,
        )
        return await self._apply_update(update)

    async def _repeat(self) -> set[str]:
        """Repeat an ended job by another job."""
        if (job := self._pick_ended()) is None:
            return set()
        copy = await self.values.new_job()
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
        queue = self.dice.choice(QUEUES)
        partition, epoch, of_model = await self.holders.pick_for(queue)
        lanes = [lane for lane in self._lanes(queue) if self.dice.random() < 0.8]
        ready = {lane: self.model.ready(lane) for lane in lanes}
        picks = [Pick(lane, self._count(jobs)) for lane, jobs in ready.items()]
        batch = await self._pick_driver().schedulers.dispatch(partition, epoch, picks)
        expected = self.model.dispatch(partition, of_model, picks)
        assert (batch is None) is (expected is None), f"{batch} instead of {expected}"
        if batch is not None and expected is not None:
            self._adopt_batch(batch, expected)
        return {job.id for jobs in ready.values() for job in jobs}

    async def _put_behind(self) -> set[str]:
        """Put some live jobs behind gates, if they are ready."""
        partition, epoch, of_model = await self.holders.pick_for(queue := self.dice.choice(QUEUES))
        there = [job.id for job in self.model.jobs.values() if job.queue == queue and job.state not in TERMINAL]
        some = self.dice.sample(there, k=min(3, len(there)))
        gates = {job: self.dice.choice((self.claims.gate_of(job), "k", "l")) for job in some}
        await self._pick_driver().schedulers.put_behind(partition, epoch, gates)
        self.model.put_behind(partition, of_model, gates)
        return await self._compare_gates(set(gates))

    async def _open_gates(self) -> set[str]:
        partition, epoch, of_model = await self.holders.pick_for(self.dice.choice(QUEUES))
        behind, gates = set(self.model.gates), self.dice.choice(({"k": 1000}, {"k": 1000, "l": 1000}))
        assert await self._pick_driver().schedulers.closed_gates(partition) == self.model.closed_gates(partition)
        opened = await self._pick_driver().schedulers.open_gates(partition, epoch, gates)
        expected = self.model.open_gates(partition, of_model, gates)
        assert sorted(opened) == sorted(expected), f"{opened} instead of {expected}"
        return await self._compare_gates(behind)

    async def _take_starts(self) -> set[str]:
        """Request starts of some dispatched jobs under rates that do not recover during the test."""
        partition, epoch, of_model = await self.holders.pick_for(queue := self.dice.choice(QUEUES))
        sent = [job for job in self.sent if job.queue == queue]
        jobs = [
            RatedJob(job.id, job.token, self.dice.choice(self.values.rates), is_sure=self.dice.random() < 0.2)
            for job in {job.id: job for job in self.dice.sample(sent, k=min(3, len(sent)))}.values()
        ]
        taken = await self._pick_driver().schedulers.take_starts(partition, epoch, jobs, lead=0.1)
        expected = self.model.take_starts(partition, of_model, jobs, lead=0.1)
        assert (taken is None) is (expected is None), f"{taken} instead of {expected}"
        if taken is not None and expected is not None:
            assert taken.instants.keys() == expected.instants.keys(), f"{taken} instead of {expected}"
            assert taken.waiting == expected.waiting, f"{taken} instead of {expected}"
        return await self._compare_gates({job.id for job in jobs})

    async def _take_claims(self) -> set[str]:
        queue, jobs = self.dice.choice(QUEUES), self.dice.sample(self.sent, k=min(3, len(self.sent)))
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
        reports = [self.values.report(self.sent) for _ in range(self.dice.choice((1, 1, 2, 5)))]
        if self.reported and self.dice.random() < 0.3:
            reports.append(self.dice.choice(self.reported))
        self.dice.shuffle(reports)
        applied = await self._pick_driver().schedulers.apply(reports, came_by=REPORTS)
        expected = self.model.apply(reports, came_by=REPORTS)
        if len({each.id for each in reports}) == len(reports):
            assert applied == expected, f"{reports}: {applied} instead of {expected}"
        outcomes = [each.outcome for each in applied]
        assert outcomes == [each.outcome for each in expected], f"{reports}: {outcomes}"
        self.reported += reports
        return {each.id for each in reports}

    async def _fire(self) -> set[str]:
        partition = self.dice.randrange(self.model.partitions)
        epoch, of_model = await self.holders.pick(partition)
        now = await self._pick_driver().store.now_ms()
        due = await self._pick_driver().schedulers.due(partition, until=now + 1, limit=5)
        self.read = [*self.read, *due][-20:]
        chosen = [timer for timer in self.read if timer.shard % self.model.partitions == partition]
        lanes = await self._pick_driver().schedulers.fire(partition, epoch, chosen)
        expected = self.model.fire(partition, of_model, chosen)
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
        return await self.holders.pick_for(jobs[0].queue if jobs else QUEUES[0])

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
        partition = self.holders.partition_of(self.dice.choice(QUEUES))
        await self.holders.hold(partition)
        if self.dice.random() < 0.3 and (earlier := self.holders.find_earlier(partition)) is not None:
            assert await self._pick_driver().schedulers.take_over(partition, earlier) == []
            return set()
        epoch, of_model = await self.holders.acquire(partition)
        found = await self._pick_driver().schedulers.take_over(partition, epoch)
        expected = self.model.take_over(partition, of_model)
        numbers = {name: number for number, name in self.batches}
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

    def _pick_driver(self) -> JobDriver:
        return self.dice.choice(self.others)

    def _pick_live(self) -> JobRecord | None:
        live = [job for job in self.model.jobs.values() if job.state not in TERMINAL]
        return self.dice.choice(live) if live else None

    def _pick_ended(self) -> JobRecord | None:
        ended = [job for job in self.model.jobs.values() if job.state in TERMINAL]
        return self.dice.choice(ended) if ended else None

    def _lanes(self, queue: str) -> list[Any]:
        return [lane for lane in self.model.lanes(self.holders.partition_of(queue)) if lane.queue == queue]

    async def _compare(self, touched: set[str]) -> None:
        reader = self._pick_driver()
        for job_id in sorted(touched):
            await compare_job(self.model, reader, job_id)
        for queue in QUEUES:
            assert await reader.lanes(queue) == sorted(
                self._lanes(queue), key=lambda lane: (-lane.priority, lane.tenant)
            )
        timers = sorted(
            DueJob(job.due, job.id, shard_of(job.id))
            for job in self.model.jobs.values()
            if job.state in (JobState.SCHEDULED, JobState.RETRYING)
        )
        assert await reader.timers() == timers
        await compare_list(self.model, reader, self.values.filter())
