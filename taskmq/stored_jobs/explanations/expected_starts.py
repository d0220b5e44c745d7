"""Expected starts of waiting jobs. Pure.

    jobs of the queue by lane, and what ended in the last minutes -> the work before a job -> a range of seconds

Turns are shared as a fluid: all lanes with jobs are served at once, each at its share (generalized processor sharing,
Parekh and Gallager, 1993). So an estimate needs the number of jobs in each lane, and not their order.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf, sqrt
from typing import Final, NamedTuple

import msgspec

from taskmq.contracts.jobs import WaitingLane
from taskmq.model.jobs.pools import QueuePolicy, TenantPool, shares_of
from taskmq.model.topology import CLASSES, MIDDLE_PRIORITY, PriorityClass, class_of
from taskmq.model.units import to_datetime

MINUTES: Final = 30
"""Number of past minutes that an estimate uses."""

# Each step of the fluid looks at all lanes, and may empty only one.
_MOST_LANES: Final = 200
_EACH_PRIORITY: Final = 4.0
_WINDOWS: Final = (2, 5, 10, MINUTES)
# A window that is shorter than so many runs sees too few ends.
_RUNS: Final = 3
# Quantile of the normal distribution: 9 of 10 values lie within so many standard deviations.
_DEVIATIONS: Final = 1.65
# Load of the other senders, as a factor of the usual one, and turns of the job's lane that it may be ahead or behind.
_FLOOD: Final = 3.0
_TURNS_AHEAD: Final = -1.0
_TURNS: Final = 0.5
_TURNS_BEHIND: Final = 2.0
_HIGHEST_LOAD: Final = 0.95
_SOONEST: Final = 0.01
_NOTHING: Final = 1e-9


class EndedRuns(NamedTuple):
    """A number of ended runs, and their run time in seconds."""

    runs: int
    seconds: float


class ExpectedStart(msgspec.Struct, frozen=True):
    """Expected start of a job, in seconds from now.

    Nine of ten jobs start between `earliest` and `latest` if the queue goes on as in the last minutes.

    Attributes:
        before: number of jobs in the store that start before it if no new ones come.
    """

    before: float
    earliest: float
    likely: float
    latest: float

    def to_estimate(self, now: int, at_broker: int) -> "StartEstimate":
        """Return the estimate in instants.

        Args:
            now: ms since the epoch.
            at_broker: jobs of the queue that wait at the broker.
        """
        earliest, likely, latest = (
            to_datetime(now + round(seconds * 1000)) for seconds in (self.earliest, self.likely, self.latest)
        )
        return StartEstimate(
            position=round(self.before) + at_broker + 1, earliest=earliest, likely=likely, latest=latest
        )


class StartEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected start of a job, from its queue's last half hour.

    Attributes:
        position: number of jobs that start before it if no new ones come, plus one.
        earliest, latest: nine of ten jobs start between them if the queue goes on as it did.
    """

    position: int
    earliest: datetime
    likely: datetime
    latest: datetime


class _Pace(NamedTuple):
    """Assumptions about workers and senders.

    Attributes:
        speed: worker-seconds of runs a second.
        seconds: mean run time of the jobs of each tenant.
        inflow: new jobs of each tenant a second.
        turns: turns of the job's own lane that pass besides those of earlier jobs.
    """

    speed: float
    seconds: Mapping[str, float]
    inflow: Mapping[str, float]
    turns: float


class _Leaf:
    """A lane: jobs that are left, their run time in seconds, and new ones a second."""

    __slots__ = ("cost", "inflow", "jobs", "rank", "tenant", "turns")

    def __init__(self, lane: WaitingLane, cost: float, inflow: float) -> None:
        self.rank: PriorityClass = class_of(lane.priority)
        self.tenant = lane.tenant
        self.turns = _EACH_PRIORITY**lane.priority
        self.jobs = float(lane.jobs)
        self.cost = cost
        self.inflow = inflow


def expect_start(
    policy: QueuePolicy,
    pools: Mapping[str, TenantPool],
    lanes: Sequence[WaitingLane],
    own: WaitingLane,
    minutes: Sequence[Mapping[str, EndedRuns]],
    *,
    at_broker: int = 0,
    more_slots: int = 0,
) -> ExpectedStart | None:
    """Return when a job is expected to start; None if the last minutes do not tell, or the policy is `deadline`.

    Args:
        lanes: all lanes of the queue with ready jobs.
        own: the one of the job.
        minutes: what ended of the queue, by tenant, in each of the last `MINUTES` minutes, the last one first.
        at_broker: jobs of the queue that wait at the broker.
        more_slots: slots that are added to those that worked in the last minutes.
    """
    whole = _sum(minutes)
    runs = sum(each.runs for each in whole.values())
    if policy.policy == "deadline" or len(lanes) > _MOST_LANES or not runs:
        return None
    mean = sum(each.seconds for each in whole.values()) / runs
    windows = [minutes[:length] for length in _WINDOWS if length * 60 >= _RUNS * mean]
    speeds = [sum(each.seconds for each in _sum(window).values()) / (60 * len(window)) for window in windows]
    if not speeds or min(speeds) <= 0:
        return None
    # A slot runs one worker-second a second.
    speeds = [speed + more_slots for speed in speeds]
    seconds = {tenant: each.seconds / each.runs for tenant, each in whole.items()}
    inflow = {tenant: each.runs / (60 * len(minutes)) for tenant, each in whole.items()}
    flood = {tenant: rate * _FLOOD for tenant, rate in inflow.items()}
    first, likely, last = (
        _expect_wait(policy, pools, lanes, own, pace)
        for pace in (
            _Pace(max(speeds), seconds, {}, _TURNS_AHEAD),
            _Pace(speeds[0], seconds, inflow, _TURNS),
            _Pace(min(speeds), seconds, flood, _TURNS_BEHIND),
        )
    )
    if last[0] == inf:
        return None
    # Of run times that are exponential for each tenant.
    deviation = sqrt(2 * sum(each.runs * seconds[tenant] ** 2 for tenant, each in whole.items()) / runs)

    def margin(jobs: float) -> float:
        return _DEVIATIONS * sqrt(jobs + at_broker + 1) * deviation

    behind = at_broker * mean
    soonest = max(first[0] + (behind - margin(first[1])) / max(speeds), 0.0)
    middle = likely[0] + behind / speeds[0]
    latest = last[0] + (behind + margin(last[1])) / min(speeds)
    return ExpectedStart(first[1], min(soonest, middle), middle, max(middle, latest))


def raise_job(lanes: Sequence[WaitingLane], own: WaitingLane, priority: int) -> tuple[list[WaitingLane], WaitingLane]:
    """Move a job to the lane of another priority; return all lanes, and its new one.

    Args:
        lanes: all lanes of the queue with ready jobs; `earlier` counts jobs that precede it with the new priority.
        own: the lane that it leaves.
    """
    found = {each[:2]: each for each in lanes}
    left, new = found.pop(own[:2], own), (priority, own.tenant)
    if left.jobs > 1:
        found[own[:2]] = left._replace(jobs=left.jobs - 1)
    there = found.get(new, WaitingLane(*new, 0, 0))
    found[new] = there._replace(jobs=there.jobs + 1)
    return list(found.values()), found[new]


def _sum(minutes: Sequence[Mapping[str, EndedRuns]]) -> dict[str, EndedRuns]:
    found: dict[str, EndedRuns] = {}
    for minute in minutes:
        for tenant, each in minute.items():
            before = found.get(tenant, EndedRuns(0, 0.0))
            found[tenant] = EndedRuns(before.runs + each.runs, before.seconds + each.seconds)
    return found


def _expect_wait(
    policy: QueuePolicy,
    pools: Mapping[str, TenantPool],
    lanes: Sequence[WaitingLane],
    own: WaitingLane,
    pace: _Pace,
) -> tuple[float, float]:
    """Return the seconds until a job starts, and the number of jobs that start before it."""
    is_priority = policy.policy == "priority"
    if not is_priority and policy.policy != "fifo":
        return _share_turns(policy, pools, lanes, own, pace)
    before = {each: each.earlier for each in lanes}
    if is_priority and policy.strict:
        before = {
            each: each.jobs if each.priority > own.priority else each.earlier
            for each in lanes
            if each.priority >= own.priority
        }
    usual = _usual_cost(pace)
    wait = sum(jobs * pace.seconds.get(each.tenant, usual) for each, jobs in before.items()) / pace.speed
    if is_priority and (rise := max(each.priority for each in lanes) - own.priority):
        # New jobs of a higher priority precede it: always, or while it has not risen to theirs.
        load = sum(rate * pace.seconds[tenant] for tenant, rate in pace.inflow.items()) / pace.speed
        load = min(load, _HIGHEST_LOAD)
        wait = min(wait / (1 - load), inf if policy.strict else wait + rise * policy.ageing * load)
    return wait, float(sum(before.values()))


def _usual_cost(pace: _Pace) -> float:
    return sum(pace.seconds.values()) / len(pace.seconds)


def _share_turns(
    policy: QueuePolicy,
    pools: Mapping[str, TenantPool],
    lanes: Sequence[WaitingLane],
    own: WaitingLane,
    pace: _Pace,
) -> tuple[float, float]:
    """Serve all lanes at their shares until the job's own lane has served those before it."""
    here: dict[str, int] = {}
    for each in lanes:
        here[each.tenant] = here.get(each.tenant, 0) + each.jobs
    absent = [WaitingLane(MIDDLE_PRIORITY, tenant, 0, 0) for tenant in pace.inflow if tenant not in here]
    usual = _usual_cost(pace)
    leaves = [
        _Leaf(
            each,
            # A run time of 0 would mean an infinite speed.
            max(pace.seconds.get(each.tenant, usual), _NOTHING),
            pace.inflow.get(each.tenant, 0.0) * (each.jobs / here[each.tenant] if each.jobs else 1.0),
        )
        for each in [*lanes, *absent]
    ]
    mine = leaves[lanes.index(own)]
    # Later jobs of its lane do not precede it.
    mine.jobs, mine.inflow = max(own.earlier + pace.turns, _SOONEST), 0.0
    passed = started = 0.0
    while mine.jobs:
        speeds = _speeds(policy, pools, leaves, pace.speed)
        falling = [(leaf, speed) for leaf, speed in speeds.items() if leaf.jobs and speed > leaf.inflow]
        if not falling:
            # Higher classes, which always go first, get more jobs than workers run.
            return inf, started
        step = min(leaf.jobs / (speed - leaf.inflow) for leaf, speed in falling)
        for leaf, speed in speeds.items():
            leaf.jobs -= step * (speed - leaf.inflow)
            leaf.jobs = 0.0 if leaf.jobs <= _NOTHING else leaf.jobs
            started += step * speed
        passed += step
    return passed, started


def _speeds(
    policy: QueuePolicy, pools: Mapping[str, TenantPool], leaves: Sequence[_Leaf], capacity: float
) -> dict[_Leaf, float]:
    """Return the jobs that each lane starts a second: its share, or only its inflow if it has no others."""
    found: dict[_Leaf, float] = {}
    rest = [leaf for leaf in leaves if leaf.jobs or leaf.inflow]
    while True:
        shares = _shares(policy, pools, rest)
        mean = sum(share * leaf.cost for leaf, share in shares.items())
        is_by_count = policy.policy == "round_robin"
        speeds = {leaf: capacity * share / (mean if is_by_count else leaf.cost) for leaf, share in shares.items()}
        few = [leaf for leaf in rest if not leaf.jobs and leaf.inflow <= speeds.get(leaf, 0.0)]
        if not few:
            return {**found, **speeds}
        for leaf in few:
            found[leaf] = leaf.inflow
            capacity -= leaf.inflow * leaf.cost
            rest.remove(leaf)


def _shares(policy: QueuePolicy, pools: Mapping[str, TenantPool], leaves: Sequence[_Leaf]) -> dict[_Leaf, float]:
    """Return the share of each lane while these have jobs; a lower class has none if the highest goes first."""
    ranks: dict[PriorityClass, list[_Leaf]] = {}
    for leaf in leaves:
        ranks.setdefault(leaf.rank, []).append(leaf)
    if policy.strict:
        highest = min(ranks, key=CLASSES.index)
        ranks = {highest: ranks[highest]}
    total = sum(policy.shares[rank] for rank in ranks)
    found: dict[_Leaf, float] = {}
    for rank, members in ranks.items():
        turns: dict[str, float] = {}
        for leaf in members:
            turns[leaf.tenant] = turns.get(leaf.tenant, 0.0) + leaf.turns
        shares = shares_of(turns, pools, weighted=policy.policy == "weighted")
        for leaf in members:
            found[leaf] = policy.shares[rank] / total * shares[leaf.tenant] * leaf.turns / turns[leaf.tenant]
    return found
