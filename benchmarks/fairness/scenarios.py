"""What is simulated: the claims about fairness that need no servers, each beside how others decide.

Every function takes its size, so that tests run the same at a fraction of it.
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

__all__ = [
    "WEIGHTS",
    "decisions",
    "flood",
    "jain",
    "killed",
    "lent",
    "paper",
    "percentile",
    "policies",
    "quiet",
    "strict_flood",
]

WEIGHTS: Mapping[str, float] = {"gold": 5.0, "silver": 3.0, "bronze": 2.0}
_SECONDS: Mapping[str, float] = {"gold": 0.1, "silver": 1.0, "bronze": 10.0}
_WEIGHTED = QueuePolicy(policy="weighted")


def percentile(values: Iterable[float], part: float) -> float:
    """The value below which this part of them lies; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else 0.0


def jain(values: Iterable[float]) -> float:
    """Jain's index: 1 where all have the same, 1/n where one has everything."""
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
    """Three tenants with weights 5:3:2 and run times of 0.1, 1 and 10 s; the last one floods.

    Twice as many jobs are dispatched as there are slots, as a scheduler does.
    """
    found: dict[str, Outcome] = {}
    for name, turns in _orders(WEIGHTS).items():
        found[name] = Simulation(turns, slots=slots, ahead=slots).run(
            _flood(jobs, slots=slots, seconds=seconds), until=seconds
        )
    return found


def _flood(jobs: int, *, slots: int, seconds: float) -> Iterator[VirtualJob]:
    """The flood is there first; the others have enough for the whole time."""
    numbers = count()
    for _ in range(jobs):
        yield VirtualJob(next(numbers), "bronze", _SECONDS["bronze"])
    for tenant in ("gold", "silver"):
        for _ in range(int(slots * seconds / _SECONDS[tenant])):
            yield VirtualJob(next(numbers), tenant, _SECONDS[tenant])


def quiet(*, jobs: int = 100_000, slots: int = 64, seconds: float = 600.0) -> dict[str, list[float]]:
    """A tenant that submits a job of 1 s now and then, alone and beside a flood: its response times.

    The flood's runs differ a hundredfold (0.1 to 10 s). A quarter more is dispatched than there are slots, as a
    scheduler does.
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
        # One that has not ended by then has waited for that long at least.
        found[name] = outcome.responses["quiet"] + [seconds] * late
    return found


def _copies(jobs: Iterable[VirtualJob]) -> list[VirtualJob]:
    return [VirtualJob(job.number, job.tenant, job.seconds, job.submitted, job.priority) for job in jobs]


def strict_flood(*, jobs: int = 100_000, slots: int = 64, seconds: float = 600.0) -> dict[str, dict[str, float]]:
    """A flood of priority 9 beside jobs of 4 and 0: what each class gets, by its shares and strictly."""
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
    """What decisions cost.

    Attributes:
        microseconds: of processor time, for a pick, its job's start and its end.
        bytes_per_tenant: that its lane takes.
    """

    microseconds: float
    bytes_per_tenant: float
    served: int


def decisions(tenants: int, *, count_of: int = 50_000, batch: int = 500) -> Decisions:
    """Decide about jobs of so many tenants, in batches as a scheduler does; the backlog is theirs in equal parts.

    How many jobs wait behind the first of a lane makes no difference to a decision: they stay in the store.
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
    # The machine does other things too: what it takes undisturbed is what counts.
    return Decisions(statistics.median(spent), size / tenants, len(served))


def lent(*, slots: int = 40, seconds: float = 300.0) -> Outcome:
    """A pool with a minimum of half the slots comes and goes; another one has a cap."""
    pools = [
        TenantPool(name="owner", min={"slots": slots / 2}),
        TenantPool(name="capped", max={"slots": slots / 8}),
    ]
    numbers = count()
    submitted = [VirtualJob(next(numbers), name, 2.0) for name in ("guest", "capped") for _ in range(20_000)]
    submitted += [VirtualJob(next(numbers), "owner", 2.0, seconds / 3) for _ in range(int(slots * seconds / 16))]
    return Simulation(Ours(pools=pools), slots=slots).run(submitted, until=seconds)


def killed(*, slots: int = 64, seconds: float = 600.0, jobs: int = 100_000, every: float = 120.0) -> Outcome:
    """The flood with weights again; the scheduler is killed again and again, and its successor knows what runs."""
    now = first = Ours(_WEIGHTED, _pools(WEIGHTS))
    changes: dict[float, Turns] = {}
    for number in range(1, int(seconds / every)):
        now = changes[number * every] = _Successor(now, number * every)
    return Simulation(first, slots=slots, ahead=slots).run(
        _flood(jobs, slots=slots, seconds=seconds), until=seconds, changes=changes
    )


class _Successor(Ours):
    """Takes over with its first decision."""

    def __init__(self, before: Ours, at: float) -> None:
        super().__init__(_WEIGHTED, _pools(WEIGHTS))
        self._before: Ours | None = before
        self._at = at

    def next(self, room: int, now: float) -> list[VirtualJob]:
        self._take_over()
        return super().next(room, now)

    def arrived(self, job: VirtualJob) -> None:
        self._take_over()
        super().arrived(job)

    def ended(self, job: VirtualJob) -> None:
        self._take_over()
        super().ended(job)

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
    """The example of the DRF paper over time: the dominant share of each, for jobs of 1 and of 5 s."""
    found: dict[str, dict[str, float]] = {}
    orders: dict[str, Turns] = {
        "taskmq fair": Ours(capacities=_PAPER, needs=_ASKED),
        "DRF": Drf(_PAPER),
        "FIFO": Fifo(),
    }
    runs = {"memory-bound": 1.0, "cpu-bound": 5.0}
    for name, turns in orders.items():
        submitted = [
            VirtualJob(2 * number + place, tenant, run, needs=_ASKED[tenant])
            for number in range(int(seconds * 8))
            for place, (tenant, run) in enumerate(runs.items())
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
    """One backlog in each policy: batch (10 s, 600 at once), web (0.5 s, 24 each second), urgent (1 s, priority 9).

    Jobs of `web` expire after 20 s where that counts. One that has not started in the end has waited until then.
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
