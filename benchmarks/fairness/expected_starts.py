"""Comparison of expected starts of jobs with their true starts, in virtual time."""

import random
import statistics
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from benchmarks.fairness.orders import Ours
from benchmarks.fairness.simulation import Simulation, VirtualJob
from taskmq.contracts.jobs import Lane, WaitingLane
from taskmq.model.jobs.pools import QueuePolicy, TenantPool
from taskmq.model.topology import Policy
from taskmq.stored_jobs.explanations.expected_starts import MINUTES, EndedRuns, ExpectedStart, expect_start

POLICIES: tuple[Policy, ...] = ("fair", "weighted", "round_robin", "priority", "fifo")

_SECONDS = 2700.0
_FIRST_ASKED = 600.0
_ASKED = 400


@dataclass
class Estimates:
    """Counts of estimates of jobs that have started, and the widths of their ranges as parts of the true waits."""

    asked: int = 0
    unknown: int = 0
    early: int = 0
    late: int = 0
    widths: list[float] = field(default_factory=list[float])

    @property
    def within(self) -> float:
        """The fraction of jobs that started within their ranges."""
        return 1 - (self.early + self.late) / max(self.asked - self.unknown, 1)

    @property
    def width(self) -> float:
        """The median width."""
        return statistics.median(self.widths)

    def add(self, wait: float, expected: ExpectedStart | None) -> None:
        """Add the estimate of a job that waited so many seconds."""
        self.asked += 1
        if expected is None:
            self.unknown += 1
            return
        self.early += wait < expected.earliest
        self.late += wait > expected.latest
        self.widths.append((expected.latest - expected.earliest) / max(wait, 1.0))


class _Asked(Ours):
    """The scheduler's decisions; every few seconds, someone asks about a waiting job."""

    def __init__(self, policy: QueuePolicy, pools: list[TenantPool], chance: random.Random) -> None:
        super().__init__(policy, pools)
        self.asked: list[tuple[VirtualJob, float, ExpectedStart | None]] = []
        self._policy, self._pools = policy, {pool.name: pool for pool in pools}
        self._chance = chance
        self._next = _FIRST_ASKED
        self._ended: list[tuple[float, str, float]] = []

    def next(self, room: int, now: float) -> list[VirtualJob]:
        if now >= self._next and self.waiting:
            self._next = now + _SECONDS / _ASKED
            lane = self._chance.choice(sorted(self.waiting))
            job = self._chance.choice(self.waiting[lane])
            self.asked.append((job, now, self._expect(lane, job, now)))
        return super().next(room, now)

    def on_end(self, job: VirtualJob) -> None:
        super().on_end(job)
        self._ended.append((job.started + job.seconds, job.tenant, job.seconds))

    def _expect(self, lane: Lane, job: VirtualJob, now: float) -> ExpectedStart | None:
        rise = self._policy.ageing if self._policy.policy == "priority" else 0.0

        def key(one: VirtualJob) -> tuple[float, int]:
            return one.submitted - one.priority * rise, one.number

        lanes = {
            each: WaitingLane(each.priority, each.tenant, len(jobs), sum(key(one) < key(job) for one in jobs))
            for each, jobs in self.waiting.items()
        }
        minutes: list[dict[str, EndedRuns]] = [{} for _ in range(MINUTES)]
        last = int(now // 60) - 1
        for at, tenant, seconds in self._ended[bisect_right(self._ended, ((last - MINUTES + 1) * 60.0,)) :]:
            if at < (last + 1) * 60:
                found = minutes[last - int(at // 60)]
                before = found.get(tenant, EndedRuns(0, 0.0))
                found[tenant] = EndedRuns(before.runs + 1, before.seconds + seconds)
        return expect_start(self._policy, self._pools, list(lanes.values()), lanes[lane], minutes)


def estimate_starts(policy: Policy, *, queues: int = 8) -> Estimates:
    """Simulate queues with random slots, tenants, weights, run times and floods, and ask for jobs that wait."""
    found = Estimates()
    for seed in range(queues):
        chance = random.Random(seed)
        slots = chance.choice([4, 16, 64])
        names = [f"t{index}" for index in range(chance.choice([1, 3, 12]))]
        pools = [TenantPool(name=name, weight=chance.choice([1.0, 2.0, 5.0])) for name in names]
        turns = _Asked(QueuePolicy(policy=policy), pools, chance)
        Simulation(turns, slots=slots, every=60.0).run(_arrivals(chance, names, slots), until=4 * _SECONDS)
        for job, at, expected in turns.asked:
            if job.started >= 0:
                found.add(job.started - at, expected)
    return found


def _arrivals(chance: random.Random, names: list[str], slots: int) -> Iterator[VirtualJob]:
    """Yield jobs for 80 % of the slots, and of each tenant a flood of up to ten minutes' jobs at once."""
    means = {name: chance.choice([0.5, 2.0, 10.0]) for name in names}
    rates = {name: 0.8 * slots / means[name] / len(names) for name in names}
    jobs: list[tuple[float, str, int]] = []
    for name in names:
        at = 0.0
        while (at := at + chance.expovariate(rates[name])) < _SECONDS:
            jobs.append((at, name, chance.choice([4, 4, 4, 1, 8])))
        begin = chance.uniform(_FIRST_ASKED / 2, _SECONDS)
        jobs += [(begin, name, 4)] * int(rates[name] * chance.uniform(30.0, 600.0))
    numbers = count()
    for at, name, priority in sorted(jobs):
        yield VirtualJob(next(numbers), name, chance.expovariate(1 / means[name]), at, priority)
