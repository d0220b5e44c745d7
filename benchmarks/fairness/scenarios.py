"""Scenarios that check claims about fairness without servers, and compare taskmq with other orders.

Every function takes its size as arguments, so that tests can run it at a fraction.
"""

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from benchmarks.fairness.orders import Counted, Drf, Fifo, InstantFair, Ours
from benchmarks.fairness.simulation import Outcome, Simulation, Turns, VirtualJob
from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts, QueuePolicy, TenantPool
from taskmq.model.topology import Policy
from taskmq.scheduler.fairness import Shares

WEIGHTS: Mapping[str, float] = {"gold": 5.0, "silver": 3.0, "bronze": 2.0}
_SECONDS: Mapping[str, float] = {"gold": 0.1, "silver": 1.0, "bronze": 10.0}
_WEIGHTED = QueuePolicy(policy="weighted")


def percentile(values: Iterable[float], part: float) -> float:
    """Return the value below which this fraction of the values lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def jain(values: Iterable[float]) -> float:
    """Return Jain's index: 1 if all values are equal, 1/n if one has everything."""
    found = list(values)
    return sum(found) ** 2 / (len(found) * sum(value * value for value in found))


def _pools(weights: Mapping[str, float]) -> list[TenantPool]:
    return [TenantPool(name=name, weight=weight) for name, weight in weights.items()]


def _orders(weights: Mapping[str, float]) -> dict[str, Turns]:
    return {
        "taskmq weighted": Ours(_WEIGHTED, _pools(weights)),
        "YARN fair": InstantFair(weights),
        "round robin of counts": Counted(weights),
        "FIFO": Fifo(),
    }


# Weights, a flood, run times that differ a hundredfold


def flood(*, jobs: int = 100_000, slots: int = 64, seconds: float = 600.0) -> dict[str, Outcome]:
    """Simulate three tenants with weights 5:3:2 and run times of 0.1, 1 and 10 s; the last one floods.

    Like a scheduler, the simulation dispatches twice as many jobs as there are slots.
    """
    found: dict[str, Outcome] = {}
    for name, turns in _orders(WEIGHTS).items():
        found[name] = Simulation(turns, slots=slots, ahead=slots).run(
            _flood(jobs, slots=slots, seconds=seconds), until=seconds
        )
    return found


def _flood(jobs: int, *, slots: int, seconds: float) -> Iterator[VirtualJob]:
    """Yield the flood first, then enough jobs of the others for the whole time."""
    numbers = count()
    for _ in range(jobs):
        yield VirtualJob(next(numbers), "bronze", _SECONDS["bronze"])
    for tenant in ("gold", "silver"):
        for _ in range(int(slots * seconds / _SECONDS[tenant])):
            yield VirtualJob(next(numbers), tenant, _SECONDS[tenant])


def quiet(*, jobs: int = 100_000, slots: int = 64, seconds: float = 600.0) -> dict[str, list[float]]:
    """Return the response times of a tenant with occasional jobs of 1 s, alone and during a flood.

    The flood's run times range from 0.1 to 10 s. Like a scheduler, the simulation dispatches a quarter more jobs than
    there are slots.
    """
    dice = random.Random(1)
    own = [VirtualJob(10**9 + number, "quiet", 1.0, 5.0 + number * 1.7) for number in range(int(seconds / 2))]
    runs = [10 ** dice.uniform(-1, 1) for _ in range(jobs)]
    found: dict[str, list[float]] = {}
    found["alone"] = (
        Simulation(Ours(), slots=slots, ahead=slots // 4).run(_copies(own), until=seconds).responses["quiet"]
    )
    for name, turns in _orders({"quiet": 1.0, "flood": 1.0}).items():
        submitted = [VirtualJob(number, "flood", run) for number, run in enumerate(runs)]
        outcome = Simulation(turns, slots=slots, ahead=slots // 4).run([*submitted, *_copies(own)], until=seconds)
        late = len(own) - len(outcome.responses["quiet"])
        # A job that has not ended counts with the whole time.
        found[name] = outcome.responses["quiet"] + [seconds] * late
    return found


def _copies(jobs: Iterable[VirtualJob]) -> list[VirtualJob]:
    return [VirtualJob(job.number, job.tenant, job.seconds, job.submitted, job.priority) for job in jobs]


def strict_flood(*, jobs: int = 100_000, slots: int = 64, seconds: float = 600.0) -> dict[str, dict[str, float]]:
    """Return the share of each priority class during a flood of priority 9, with class shares and strict priority."""
    found: dict[str, dict[str, float]] = {}
    for name, policy in {"60/30/10": QueuePolicy(), "strict": QueuePolicy(strict=True)}.items():
        submitted = [
            VirtualJob(number, "t", 1.0, priority=priority)
            for number, priority in enumerate([9] * jobs + [4] * (jobs // 2) + [0] * (jobs // 2))
        ]
        outcome = Simulation(Ours(policy), slots=slots, ahead=slots).run(submitted, until=seconds)
        total = sum(outcome.by_priority.values())
        found[name] = {
            word: outcome.by_priority[priority] / total for word, priority in (("high", 9), ("medium", 4), ("low", 0))
        }
    return found


@dataclass
class Decisions:
    """Cost of decisions.

    Attributes:
        microseconds: processor time of a pick, the job's start and its end.
        bytes_per_tenant: memory of a tenant's lane.
    """

    microseconds: float
    bytes_per_tenant: float
    served: int


def decisions(tenants: int, *, count_of: int = 50_000, batch: int = 500) -> Decisions:
    """Measure decisions on a backlog of equal parts for each tenant, in batches like a scheduler's.

    The number of jobs behind the first of a lane does not affect a decision: they stay in the store.
    """
    import tracemalloc

    lanes = [Lane("work", 4, f"tenant-{number:05}") for number in range(tenants)]
    tracemalloc.start()
    shares = Shares()
    shares.refresh(lanes)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    numbers = count()
    served: set[str] = set()
    spent: list[float] = []
    for _ in range(max(count_of // batch, 4)):
        began = time.process_time()
        picks = shares.picks(lambda _: batch, limit=batch)
        jobs = [(str(next(numbers)), "t", pick.lane) for pick in picks for _ in range(pick.count)]
        shares.resolve(jobs)
        for name, _, _ in jobs:
            shares.end(name, 0.1)
        spent.append((time.process_time() - began) / len(jobs) * 1e6)
        served.update(lane.tenant for _, _, lane in jobs)
    # The median ignores batches that other processes disturbed.
    return Decisions(statistics.median(spent), size / tenants, len(served))


def lent(*, slots: int = 40, seconds: float = 300.0) -> Outcome:
    """Simulate a pool with a minimum of half the slots, active for a while, and another pool with a cap."""
    pools = [
        TenantPool(name="owner", min={"slots": slots / 2}),
        TenantPool(name="capped", max={"slots": slots / 8}),
    ]
    numbers = count()
    submitted = [VirtualJob(next(numbers), name, 2.0) for name in ("guest", "capped") for _ in range(20_000)]
    submitted += [VirtualJob(next(numbers), "owner", 2.0, seconds / 3) for _ in range(int(slots * seconds / 16))]
    return Simulation(Ours(pools=pools), slots=slots).run(submitted, until=seconds)


def killed(*, slots: int = 64, seconds: float = 600.0, jobs: int = 100_000, every: float = 120.0) -> Outcome:
    """Simulate the weighted flood while the scheduler is killed repeatedly; its successors know the running jobs."""
    now = first = Ours(_WEIGHTED, _pools(WEIGHTS))
    changes: dict[float, Turns] = {}
    for number in range(1, int(seconds / every)):
        now = changes[number * every] = _Successor(now, number * every)
    return Simulation(first, slots=slots, ahead=slots).run(
        _flood(jobs, slots=slots, seconds=seconds), until=seconds, changes=changes
    )


class _Successor(Ours):
    """A scheduler that takes over from the previous one on its first call."""

    def __init__(self, before: Ours, at: float) -> None:
        super().__init__(_WEIGHTED, _pools(WEIGHTS))
        self._before: Ours | None = before
        self._at = at

    def next(self, room: int, now: float) -> list[VirtualJob]:
        self._take_over()
        return super().next(room, now)

    def on_arrival(self, job: VirtualJob) -> None:
        self._take_over()
        super().on_arrival(job)

    def on_end(self, job: VirtualJob) -> None:
        self._take_over()
        super().on_end(job)

    def _take_over(self) -> None:
        if (before := self._before) is not None:
            self._before = None
            self.succeed(before, now=self._at)


_PAPER: Amounts = {"cpu": 9.0, "memory": 18.0}
_ASKED: Mapping[str, Amounts] = {
    "memory-bound": {"slots": 1.0, "cpu": 1.0, "memory": 4.0},
    "cpu-bound": {"slots": 1.0, "cpu": 3.0, "memory": 1.0},
}


def paper(*, seconds: float = 2000.0) -> dict[str, dict[str, float]]:
    """Return each tenant's dominant share in the DRF paper's example, for jobs of 1 and of 5 s."""
    found: dict[str, dict[str, float]] = {}
    orders: dict[str, Turns] = {
        "taskmq fair": Ours(capacities=_PAPER, needs=_ASKED),
        "DRF": Drf(_PAPER),
        "FIFO": Fifo(),
    }
    runs = {"memory-bound": 1.0, "cpu-bound": 5.0}
    for name, turns in orders.items():
        submitted = [
            VirtualJob(2 * number + index, tenant, run, needs=_ASKED[tenant])
            for number in range(int(seconds * 8))
            for index, (tenant, run) in enumerate(runs.items())
        ]
        outcome = Simulation(turns, slots=1000, capacities=_PAPER).run(submitted, until=seconds)
        used = outcome.readings[-1][1]
        found[name] = {
            tenant: used.get(tenant, 0.0)
            / seconds
            * max(_ASKED[tenant][resource] / capacity for resource, capacity in _PAPER.items())
            for tenant in runs
        }
    return found


def policies(*, slots: int = 16, seconds: float = 240.0) -> dict[Policy, Outcome]:
    """Simulate one backlog with each policy.

    Jobs: batch (10 s, 600 at once), web (0.5 s, 24 per second, expiring after 20 s for the policy `deadline`), urgent
    (1 s, priority 9). A job that has not started counts as waiting until the end.
    """
    numbers = count()
    backlog = [VirtualJob(next(numbers), "batch", 10.0) for _ in range(600)]
    later = [
        VirtualJob(next(numbers), "web", 0.5, at / 24, expires=at / 24 + 20) for at in range(int(24 * seconds))
    ] + [VirtualJob(next(numbers), "urgent", 1.0, at / 2, priority=9) for at in range(int(2 * seconds))]
    later.sort(key=lambda job: job.submitted)
    pools = [TenantPool(name="batch", weight=1.0), TenantPool(name="web", weight=3.0)]
    found: dict[Policy, Outcome] = {}
    names: tuple[Policy, ...] = ("fifo", "priority", "round_robin", "fair", "weighted", "deadline")
    for policy in names:
        copies = [
            VirtualJob(job.number, job.tenant, job.seconds, job.submitted, job.priority, job.expires)
            for job in [*backlog, *later]
        ]
        outcome = Simulation(Ours(QueuePolicy(policy=policy), pools), slots=slots).run(copies, until=seconds)
        for job in copies:
            if job.started < 0:
                outcome.waits[job.tenant].append(seconds - job.submitted)
        found[policy] = outcome
    return found
