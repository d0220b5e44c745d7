"""Invariants of the reference model of job stores, to which the stores are compared."""

import os
import random

from taskmq.contracts.jobs import DispatchedJob, JobRecord, JobUpdate, NewJob, Pick, partition_key
from taskmq.contracts.stores import Lease
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.changes import Action, Decision, decide
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.states import CHANGEABLE, TERMINAL, UNDERWAY, JobState, can_follow
from taskmq.testing import JobModel

# A campaign runs a million of them: TASKMQ_TEST_HISTORIES=1000000.
_HISTORIES = int(os.environ.get("TASKMQ_TEST_HISTORIES", "400"))
_STEPS = 60
_ACTIONS: tuple[Action, ...] = ("change", "cancel", "hold", "release", "retry")
_KINDS: tuple[ReportKind, ...] = (
    "started", "succeeded", "failed", "retry", "snoozed", "expired", "cancelled", "refused", "interrupted",
)  # fmt: skip


class _History:
    """Random operators, schedulers and workers, with crashes: lost, late, doubled and forged reports."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.model = JobModel(partitions=1, now=1_000_000, dice=random.Random(seed))
        self.epochs: list[int] = []
        self.sent: list[DispatchedJob] = []
        self.accepted_ends: dict[str, int] = {}
        self.tokens: dict[str, set[int]] = {}
        self.stale_writes = 0
        self.next_holder()

    def run(self) -> None:
        steps = (
            *(self.submit, self.submit, self.act, self.dispatch, self.dispatch),
            *(self.report, self.report, self.report, self.fire, self.fire, self.undispatch),
        )
        for _ in range(_STEPS):
            before = dict(self.model.jobs)
            self.model.now += self.dice.choice((0, 1, 500))
            self.dice.choice((*steps, self.crash))()
            self.check(before)

    def submit(self) -> None:
        number = self.dice.getrandbits(80)
        job = NewJob(
            id=new_job_id(self.model.now, number.to_bytes(10)),
            key=self.dice.choice((None, None, None, "a", "b")),
            task="t",
            queue=self.dice.choice("pq"),
            due=self.model.now + self.dice.choice((-5, 0, 300)),
            expires=self.dice.choice((None, None, self.model.now + 900)),
            held=self.dice.random() < 0.1,
            body=b"{}",
        )
        (answer,) = self.model.submit([job])
        assert answer.is_new is (answer.id == job.id)
        assert self.model.jobs[answer.id].version == answer.version

    def act(self) -> None:
        if (job := self.any_job()) is None:
            return
        action = self.dice.choice(_ACTIONS)
        decision = decide(action, job.state, due=job.due, now=self.model.now)
        if isinstance(decision, Decision):
            changed = self.model.update(_update(job, decision, now=self.model.now))
            assert changed == self.model.jobs[job.id]
            assert changed.version == job.version + 1
            # Another decision on the same version comes too late.
            assert self.model.update(_update(job, decision, now=self.model.now)) is None

    def dispatch(self) -> None:
        epoch = self.dice.choice(self.epochs[-2:])
        picks = [Pick(lane, self.dice.randrange(1, 3)) for lane in self.model.lanes(0)]
        batch = self.model.dispatch(0, epoch, picks)
        if epoch != self.epochs[-1]:
            assert batch is None
            self.stale_writes += 1
        for job in batch.jobs if batch else ():
            assert job.token not in self.tokens.setdefault(job.id, set())
            self.tokens[job.id].add(job.token)
            self.sent.append(job)

    def report(self) -> None:
        if not self.sent:
            return
        job = self.dice.choice(self.sent[-4:] if self.dice.random() < 0.7 else self.sent)
        forged = self.dice.random() < 0.1
        kind = self.dice.choice(_KINDS)
        before = self.model.jobs[job.id]
        said = Report(id=job.id, token=job.token ^ forged, kind=kind, delay=self.dice.choice((0, 400)))
        applied, again = self.model.apply([said, said])
        is_present = before.state in UNDERWAY and before.token == said.token
        assert (applied.outcome == "accepted") is is_present
        assert again.outcome in ("superseded", "invented") or kind == "started"
        if is_present and applied.state in TERMINAL:
            self.accepted_ends[job.id] = self.accepted_ends.get(job.id, 0) + 1

    def fire(self) -> None:
        epoch = self.dice.choice(self.epochs[-2:])
        due = self.model.due(0, until=self.model.now + 1, limit=3)
        fired = self.model.fire(0, epoch, due)
        assert bool(fired) is (bool(due) and epoch == self.epochs[-1])

    def undispatch(self) -> None:
        epoch, jobs = self.dice.choice(self.epochs[-2:]), self.sent[-2:]
        before = {job.id: self.model.jobs[job.id] for job in jobs}
        answer = self.model.undispatch(0, epoch, jobs, delay=self.dice.choice((0.0, 0.3)))
        changed = {job_id for job_id, was in before.items() if self.model.jobs[job_id] != was}
        assert changed == answer.ids
        assert all(before[job_id].state is JobState.DISPATCHED for job_id in changed)
        assert epoch == self.epochs[-1] or not (answer.ids or answer.running)

    def crash(self) -> None:
        """Let another scheduler take over the partition with everything left in it."""
        self.next_holder()
        left = {job.id for batch in self.model.take_over(0, self.epochs[-1]) for job in batch.jobs}
        assert left == {job.id for job in self.model.jobs.values() if job.state in UNDERWAY}

    def next_holder(self) -> None:
        if self.epochs:
            self.model.leases.release(partition_key(0), token=self.epochs[-1])
        taken = self.model.leases.acquire(partition_key(0), owner="s", seconds=1e6, now=self.model.now)
        assert not isinstance(taken, Lease)
        assert taken > max(self.epochs, default=0)
        self.epochs.append(taken)

    def any_job(self) -> JobRecord | None:
        return self.dice.choice([*self.model.jobs.values()]) if self.model.jobs else None

    def check(self, before: dict[str, JobRecord]) -> None:
        assert before.keys() <= self.model.jobs.keys(), "a job was lost"
        for job_id, job in self.model.jobs.items():
            was = before.get(job_id)
            if was is not None and was != job:
                assert was.state not in TERMINAL, "an end is final"
                assert job.version > was.version
                assert _leads(was.state, job.state, steps=job.version - was.version)
            assert (job.finished is not None) is (job.state in TERMINAL)
            assert job.attempt == len(self.model.attempts(job_id)) + 1
            assert self.accepted_ends.get(job_id, 0) <= 1
        keys = [job.key for job in self.model.jobs.values() if job.key]
        assert len(keys) == len(set(keys))
        ready = {job.id for lane in self.model.lanes(0) for job in self.model.ready(lane)}
        timers = {timer.id for timer in self.model.due(0, until=2**53, limit=10_000)}
        states = {job_id: job.state for job_id, job in self.model.jobs.items()}
        assert ready == {job_id for job_id, state in states.items() if state is JobState.QUEUED}
        assert timers == {
            job_id for job_id, state in states.items() if state in (JobState.SCHEDULED, JobState.RETRYING)
        }


def _update(job: JobRecord, decision: Decision, *, now: int) -> JobUpdate:
    due = now if decision.is_due else job.due
    if decision.is_request:
        return JobUpdate(
            id=job.id,
            before=job.state,
            version=job.version,
            after=job.state,
            cancel_requested="not needed",
            kind="cancel_requested",
        )
    return JobUpdate(id=job.id, before=job.state, version=job.version, after=decision.state, kind="change", due=due)


def _leads(before: JobState, after: JobState, *, steps: int) -> bool:
    """Whether that many steps of the table, or fewer, lead there."""
    reached = {before}
    for _ in range(steps):
        reached |= {state for each in reached for state in JobState if can_follow(each, state)}
    return after in reached


def test_the_invariants_hold_after_every_step_of_random_histories() -> None:
    stale = 0

    for seed in range(_HISTORIES):
        history = _History(seed)
        try:
            history.run()
        except AssertionError as failure:
            raise AssertionError(f"history {seed}: {failure}") from failure
        stale += history.stale_writes

    assert stale > 0


def test_every_job_of_a_random_history_can_be_brought_to_an_end() -> None:
    for seed in range(20):
        history = _History(seed)
        history.run()
        for job in list(history.model.jobs.values()):
            if job.state in CHANGEABLE:
                cancelled = decide("cancel", job.state, due=job.due, now=history.model.now)
                assert isinstance(cancelled, Decision)
                history.model.update(_update(job, cancelled, now=history.model.now))
            elif job.state in UNDERWAY:
                history.model.apply([Report(id=job.id, token=job.token, kind="succeeded")])

        assert {job.state for job in history.model.jobs.values()} <= TERMINAL


def test_the_same_calls_give_the_same_jobs() -> None:
    first, second = _History(7), _History(7)

    first.run()
    second.run()

    assert first.model.jobs == second.model.jobs
    assert first.model.jobs != _ran(8)


def _ran(seed: int) -> dict[str, JobRecord]:
    history = _History(seed)
    history.run()
    return history.model.jobs
