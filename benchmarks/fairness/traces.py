"""Simulation of a large cluster with jobs like those of public cluster traces, scheduled by taskmq and other orders.

The simulation reads no trace: it draws run times and tenants from published descriptions of four traces. The figures
are in the papers' abstracts; only the exponent and the variation of Google 2019 come from notes on that paper.

- Google 2019 (Tirmazi et al., "Borg: the Next Generation", EuroSys 2020): the processor time of a job is Pareto
  with an exponent of 0.69, its squared coefficient of variation 23,312, and 1 % of the jobs take over 99 % of it.
  Half of the tenants have run times with this exponent, bounded to 10 s and an hour, since what is larger is no
  longer one run: mean 118 s, median 27 s, squared coefficient of variation 7.6, 22 % of the time in 1 % of the
  jobs. The tail is that much lighter.
- Alibaba 2017 (Jiang et al., "Characteristics of Co-Allocated Online Services and Batch Jobs in Internet Data
  Centers", IEEE Access 2019, DOI 10.1109/ACCESS.2019.2897898): 1,003 s is the 99th percentile of the times in which
  instances of batch jobs complete. The other half of the tenants: log-normal with this percentile. The sigma of 1.5
  is an assumption: mean 94 s, median 31 s.
- Alibaba 2018 (Jiang et al., "Characterizing Co-located Workloads in Alibaba Cloud Datacenters", IEEE TCC 2020, DOI
  10.1109/TCC.2020.3034500): batch jobs, their tasks and instances are close to Zipf's law. That jobs of tenants
  are, with an exponent of 1, is an assumption.
- Google 2011 (Reiss et al., "Heterogeneity and Dynamicity of Clouds at Scale", SoCC 2012): processors and memory
  are asked for in different proportions. The three shapes of jobs are an assumption.

All jobs are submitted in half the time that the cluster needs to run them. The nodes' slots, processors and memory
form one pool, as for the workers of a queue. Every order picks fifty jobs at a time, and a job that does not fit
blocks those behind it.
"""

import gc
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import exp
from typing import Final

from benchmarks.fairness.orders import Drf, Fifo, InstantFair, Ours
from benchmarks.fairness.scenarios import jain, percentile
from benchmarks.fairness.simulation import Simulation, Turns, VirtualJob
from taskmq.model.jobs.pools import Amounts

_LOAD: Final = 2.0
_PARETO: Final = 0.69
_SHORTEST, _LONGEST = 10.0, 3_600.0
_P99: Final = 1003.0
_SIGMA: Final = 1.5
_NORMAL_P99: Final = 2.326
_AHEAD: Final = 50
_NODE: Final[Amounts] = {"slots": 2.0, "cpu": 2.0, "memory": 8.0}
_SHAPES: Final[tuple[tuple[int, Amounts], ...]] = (
    (6, {"slots": 1.0, "cpu": 1.0, "memory": 2.0}),
    (2, {"slots": 1.0, "cpu": 1.0, "memory": 8.0}),
    (2, {"slots": 1.0, "cpu": 2.0, "memory": 2.0}),
)


@dataclass(frozen=True)
class TraceFigures:
    """Figures of one order.

    Attributes:
        decisions: decisions per second of processor time in the order's code, including arrivals, starts and ends.
        simulated: decisions per second of processor time of the whole simulation.
        utilisation: utilisation of the most used resource while jobs are submitted.
        backlogged: number of tenants that had waiting jobs all that time.
        jain: Jain's index of their dominant shares; 1: all equal.
        error: mean deviation of their dominant shares from the mean share.
        starved: the longest time in seconds in which a tenant had waiting jobs and no running one.
        slowdowns: median and 95th percentile over tenants of mean response time divided by run time.
        megabytes: peak memory of the process, including the simulated jobs.
        shares: dominant shares of the backlogged tenants, divided by the mean share.
    """

    decided: int
    decisions: float
    simulated: float
    utilisation: float
    backlogged: int
    jain: float
    error: float
    starved: float
    slowdowns: tuple[float, float]
    megabytes: float
    shares: list[float]


def _orders(capacities: Amounts, needs: Mapping[str, Amounts]) -> dict[str, Callable[[], Turns]]:
    return {
        "taskmq fair": lambda: Ours(capacities=capacities, needs=needs),
        "DRF": lambda: Drf(capacities),
        "YARN fair": InstantFair,
        "FIFO": Fifo,
    }


ORDERS: Final = tuple(_orders({}, {}))


def simulate_trace(order: str, *, nodes: int = 10_000, jobs: int = 1_000_000, tenants: int = 10_000) -> TraceFigures:
    """Submit the jobs to an overloaded cluster that one order schedules, and return the figures."""
    dice = random.Random(7)
    capacities = {name: amount * nodes for name, amount in _NODE.items()}
    shapes = dice.choices([shape for _, shape in _SHAPES], [weight for weight, _ in _SHAPES], k=tenants)
    names = [f"t{number:05}" for number in range(tenants)]
    needs = dict(zip(names, shapes, strict=True))
    submitted = _submitted(dice, names, needs, jobs, capacities)
    window = _Window(submitted[-1].submitted)
    timed = _Timed(_orders(capacities, needs)[order]())
    simulation = Simulation(
        timed, slots=int(capacities["slots"]), every=window.until, capacities=capacities, together=_AHEAD
    )
    # Keep the garbage collector off the simulated jobs: a scheduler does not hold a million jobs in memory.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    simulation.run(submitted, until=window.until)
    spent = time.process_time() - began
    gc.unfreeze()
    by_tenant: dict[str, list[VirtualJob]] = defaultdict(list)
    for job in submitted:
        by_tenant[job.tenant].append(job)
    used = {name: sum(map(window.ran, its)) for name, its in by_tenant.items()}
    taken = [
        sum(seconds * needs[name][resource] for name, seconds in used.items()) / amount / window.seconds
        for resource, amount in capacities.items()
    ]
    shares = [
        used[name] * max(amount / capacities[resource] for resource, amount in needs[name].items())
        for name, its in by_tenant.items()
        if window.waits_always(its)
    ]
    mean = sum(shares) / max(len(shares), 1)
    slow = [sum(map(window.response, its)) / sum(job.seconds for job in its) for its in by_tenant.values()]
    begun = sum(job.started >= 0 for job in submitted)
    return TraceFigures(
        decided=begun,
        decisions=begun / timed.spent if timed.spent else 0.0,
        simulated=begun / spent if spent else 0.0,
        utilisation=max(taken),
        backlogged=len(shares),
        jain=jain(shares) if mean else 0.0,
        error=sum(abs(share / mean - 1) for share in shares) / len(shares) if mean else 0.0,
        starved=max(map(window.starved, by_tenant.values())),
        slowdowns=(percentile(slow, 0.5), percentile(slow, 0.95)),
        megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        shares=[share / mean for share in shares] if mean else [],
    )


def _submitted(
    dice: random.Random, names: list[str], needs: Mapping[str, Amounts], jobs: int, capacities: Amounts
) -> list[VirtualJob]:
    weights = list(accumulate(1 / (number + 1) for number in range(len(names))))
    whose = dice.choices(range(len(names)), cum_weights=weights, k=jobs)
    found = [
        VirtualJob(number, names[tenant], _seconds(dice, tenant), needs=needs[names[tenant]])
        for number, tenant in enumerate(whose)
    ]
    asked = max(sum(job.seconds * job.needs[name] for job in found) / amount for name, amount in capacities.items())
    for job, at in zip(found, sorted(dice.uniform(0.0, asked / _LOAD) for _ in found), strict=True):
        job.submitted = at
    return found


def _seconds(dice: random.Random, tenant: int) -> float:
    if tenant % 2:
        return _P99 * exp(_SIGMA * (dice.gauss(0.0, 1.0) - _NORMAL_P99))
    whole = 1 - (_SHORTEST / _LONGEST) ** _PARETO
    return _SHORTEST * (1 - dice.random() * whole) ** (-1 / _PARETO)


@dataclass(frozen=True)
class _Window:
    """Time from when the cluster is full to the last submission; the simulation runs half as long again."""

    end: float

    @property
    def begin(self) -> float:
        return self.end / 4

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def until(self) -> float:
        return self.end * 1.5

    def ran(self, job: VirtualJob) -> float:
        """Return how long the job ran within the window."""
        if job.started < 0:
            return 0.0
        return max(min(job.started + job.seconds, self.end) - max(job.started, self.begin), 0.0)

    def waits_always(self, jobs: Iterable[VirtualJob]) -> bool:
        """Whether some job of a tenant, given in order of submission, waits at each instant of the window."""
        covered = self.begin
        for job in jobs:
            if job.submitted > covered or covered >= self.end:
                break
            covered = max(covered, self._started(job))
        return covered >= self.end

    def starved(self, jobs: Iterable[VirtualJob]) -> float:
        """Return the longest time in which a job of a tenant, given in order of submission, waited while none ran."""
        longest = busy = 0.0
        for job in jobs:
            started = self._started(job)
            longest = max(longest, started - max(busy, job.submitted))
            busy = max(busy, started + job.seconds)
        return longest

    def response(self, job: VirtualJob) -> float:
        """Return the time from submission to end."""
        return self._started(job) - job.submitted + job.seconds

    def _started(self, job: VirtualJob) -> float:
        return job.started if job.started >= 0 else self.until


class _Timed:
    """An order whose processor time is measured."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.spent = 0.0

    def on_arrival(self, job: VirtualJob) -> None:
        began = time.process_time()
        self._turns.on_arrival(job)
        self.spent += time.process_time() - began

    def next(self, room: int, now: float) -> list[VirtualJob]:
        began = time.process_time()
        found = self._turns.next(room, now)
        self.spent += time.process_time() - began
        return found

    def on_return(self, job: VirtualJob) -> None:
        began = time.process_time()
        self._turns.on_return(job)
        self.spent += time.process_time() - began

    def on_start(self, job: VirtualJob, now: float) -> None:
        began = time.process_time()
        self._turns.on_start(job, now)
        self.spent += time.process_time() - began

    def on_end(self, job: VirtualJob) -> None:
        began = time.process_time()
        self._turns.on_end(job)
        self.spent += time.process_time() - began
