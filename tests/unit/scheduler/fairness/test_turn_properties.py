"""Invariants of turns for any sequence of submits, ends, changes and take-overs. Pure."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import (
    EVERY_TENANT,
    QueuePolicy,
    TenantPool,
    path_of,
    shares_of,
)
from taskmq.model.topology import POLICIES
from tests.unit.scheduler.fairness.cluster import QUEUE, Cluster

_TENANTS = ("a", "b", "c", "team", "")


@st.composite
def _some_pools(draw: st.DrawFn) -> dict[str, TenantPool]:
    found: dict[str, TenantPool] = {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "top", "team", EVERY_TENANT]), unique=True)):
        most = draw(st.one_of(st.none(), st.integers(1, 6)))
        least = 0 if name == EVERY_TENANT else draw(st.integers(0, 3 if most is None else min(most, 3)))
        parents = [above for above in found if above != EVERY_TENANT]
        found[name] = TenantPool(
            name=name,
            parent=draw(st.one_of(st.none(), st.sampled_from(parents))) if parents and name != EVERY_TENANT else None,
            weight=draw(st.sampled_from([0.5, 1.0, 5.0])),
            min={"slots": float(least)} if least else {},
            max={} if most is None else {"slots": float(most)},
        )
    return found


# By a seed: hypothesis limits its own draws, and some of these draw a thousand times.
_dice = st.integers(0, 2**32 - 1).map(random.Random)
_policies = st.builds(QueuePolicy, policy=st.sampled_from(POLICIES), strict=st.booleans())


def _used_by_pool(cluster: Cluster, pools: Mapping[str, TenantPool]) -> Counter[str]:
    return Counter(pool.name for lane in cluster.running.values() for pool in path_of(lane.tenant, pools))


def _caps(pools: Mapping[str, TenantPool]) -> dict[str, float]:
    caps = {name: pool.max["slots"] for name, pool in pools.items() if "slots" in pool.max and name != EVERY_TENANT}
    for tenant in _TENANTS:
        own = path_of(tenant, pools)[-1]
        if "slots" in own.max:
            caps[tenant] = own.max["slots"]
    return caps


@given(policy=_policies, pools=_some_pools(), dice=_dice, steps=st.integers(1, 60))
def test_no_cap_is_ever_exceeded(
    policy: QueuePolicy, pools: dict[str, TenantPool], dice: random.Random, steps: int
) -> None:
    cluster = Cluster(policy, pools)
    for _ in range(steps):
        match dice.randrange(5):
            case 0:
                cluster.submit(dice.choice(_TENANTS), dice.randint(1, 5), priority=dice.randint(0, 9))
            case 1:
                before = _used_by_pool(cluster, pools)
                cluster.start(dice.randint(1, 10), found=dice.choice([None, 1]))
                for name, most in _caps(pools).items():
                    # A cap set later than the running jobs is respected from then on.
                    assert _used_by_pool(cluster, pools)[name] <= max(most, before[name])
            case 2 if cluster.running:
                cluster.end(dice.choice(list(cluster.running)), dice.choice([None, 0.0, 0.1, 100.0]))
            case 3 if cluster.running:
                cluster.shares.start(dice.choice(list(cluster.running)), now=cluster.now)
            case _:
                cluster.now += dice.choice([0.01, 10.0])
                if dice.randrange(4) == 0:
                    pools = {name: _change_pool(pool, dice) for name, pool in pools.items()}
                    cluster.configure(policy, pools)


def _change_pool(pool: TenantPool, dice: random.Random) -> TenantPool:
    most = dice.choice([{}, {"slots": 4.0}])
    least = {} if pool.name == EVERY_TENANT else dice.choice([{}, {"slots": 2.0}])
    return TenantPool(name=pool.name, parent=pool.parent, weight=dice.choice([1.0, 3.0]), min=least, max=most)


@pytest.mark.simulation
@given(policy=_policies, pools=_some_pools(), dice=_dice)
def test_the_same_calls_give_the_same_turns(
    policy: QueuePolicy, pools: dict[str, TenantPool], dice: random.Random
) -> None:
    one, other = Cluster(policy, pools), Cluster(policy, pools)
    for _ in range(20):
        tenant, priority, room = dice.choice(_TENANTS), dice.randint(0, 9), dice.randint(1, 4)
        ends = dice.random()
        for cluster in (one, other):
            cluster.submit(tenant, 2, priority=priority)
            cluster.start(room)
            if cluster.running:
                cluster.end(list(cluster.running)[int(ends * len(cluster.running))], 1.0 + ends)
        assert one.running == other.running


@given(policy=_policies, dice=_dice)
def test_turns_that_are_dealt_together_are_those_of_one_by_one(policy: QueuePolicy, dice: random.Random) -> None:
    # With any pool, each turn is taken by itself.
    together, singly = Cluster(policy), Cluster(policy, {"unused": TenantPool(name="unused")})
    high = dice.choice([4, 9])
    for _ in range(20):
        submits = [(dice.choice(_TENANTS), dice.randint(1, 9), dice.randint(4, high)) for _ in range(4)]
        room, found = dice.randint(1, 20), dice.choice([None, None, 1])
        ends = [(dice.random(), dice.choice([None, 0.0, 0.1, 7.0])) for _ in range(dice.randint(0, room))]
        for cluster in (together, singly):
            for tenant, jobs, priority in submits:
                cluster.submit(tenant, jobs, priority=priority)
            for name, _ in cluster.start(room, found=found):
                cluster.shares.start(name, now=0.0)
            for which, seconds in ends[: len(cluster.running)]:
                cluster.end(list(cluster.running)[int(which * len(cluster.running))], seconds)
        assert together.running == singly.running
    assert together.order(100) == singly.order(100)


@given(
    policy=_policies.filter(lambda policy: not policy.strict),
    pools=_some_pools(),
    backlog=st.lists(st.tuples(st.sampled_from(_TENANTS), st.integers(0, 9)), min_size=1, max_size=12),
)
def test_no_job_starves_behind_a_flood(
    policy: QueuePolicy, pools: dict[str, TenantPool], backlog: list[tuple[str, int]]
) -> None:
    flood = "b"
    # Its first jobs may use the whole allowance of its parent.
    for above, below in itertools.combinations(path_of(flood, pools), 2):
        assume(below.min.get("slots", 0.0) < above.max.get("slots", inf))
    cluster = Cluster(policy, pools)
    for tenant, priority in backlog:
        cluster.submit(tenant, priority=priority, due=cluster.now)
    # One ends each second, and two of the highest priority are submitted.
    for _ in range(2000):
        cluster.now += 1.0
        cluster.submit(flood, 2, priority=9, due=cluster.now)
        cluster.start(8 - len(cluster.running))
        for name in list(cluster.running)[:1]:
            cluster.end(name, 1.0)
        if not any(
            waiting for lane, waiting in cluster.waiting.items() if (lane.tenant, lane.priority) != (flood, 9)
        ):
            return
    raise AssertionError(f"still waiting: {[lane for lane, waiting in cluster.waiting.items() if waiting]}")


@pytest.mark.simulation
@given(
    tenants=st.integers(2, 10),
    slots=st.integers(5, 40),
    dice=_dice,
    longest=st.sampled_from([10.0, 10_000.0]),
)
def test_an_idle_tenant_waits_within_a_bound_whatever_its_past(
    tenants: int, slots: int, dice: random.Random, longest: float
) -> None:
    """Runs take up to `longest` and are predicted wrongly. The tenant waits at most until each other tenant has taken
    twice that, and until the running jobs have ended.
    """
    cluster = Cluster("fair")
    lanes = [Lane(QUEUE, 4, f"t{number}") for number in range(tenants)]
    long_runs = dict.fromkeys(lanes, 0.0)
    began: dict[str, float] = {}
    waits: dict[Lane, float] = {}
    bound = 2 * longest * tenants / slots + 2 * longest
    for _ in range(300):
        if dice.random() < 0.1:
            cluster.submit(dice.choice(lanes).tenant, dice.choice([1, 500]))
            long_runs[dice.choice(lanes)] = dice.choice([0.0, 0.1, 1.0])
        for name, lane in cluster.start(slots - len(cluster.running)):
            began[name] = cluster.now
            cluster.shares.start(name, now=cluster.now)
            seconds = longest * (1.0 if dice.random() < long_runs[lane] else 0.001)
            cluster.ends.append((cluster.now + seconds, name))
        for lane in lanes:
            if lane in cluster.running.values() or not cluster.waiting[lane]:
                waits.pop(lane, None)
            else:
                assert cluster.now - waits.setdefault(lane, cluster.now) <= bound
        if cluster.ends:
            cluster.ends.sort(reverse=True)
            cluster.now, name = cluster.ends.pop()
            cluster.end(name, dice.choice([None, cluster.now - began.pop(name)]))


@given(pools=_some_pools(), policy=_policies, flood=st.integers(1, 9))
def test_a_minimum_is_met_as_soon_as_there_is_room_and_demand(
    pools: dict[str, TenantPool], policy: QueuePolicy, flood: int
) -> None:
    pools = {name: pool for name, pool in pools.items() if not pool.max and pool.parent is None}
    cluster = Cluster(policy, pools)
    cluster.submit("c", 100, priority=flood)
    owed = {name: pool.min["slots"] for name, pool in pools.items() if pool.min and name in _TENANTS}
    for name in owed:
        cluster.submit(name, 100, priority=0)

    # Room for all minimums, and a tenth more.
    cluster.start(20)

    running = Counter(lane.tenant for lane in cluster.running.values())
    assert {name: running[name] >= least for name, least in owed.items()} == dict.fromkeys(owed, True)


@given(pools=_some_pools(), tenants=st.sets(st.sampled_from([*_TENANTS, "top"]), min_size=1), weighted=st.booleans())
def test_shares_of_all_pools_with_jobs_add_up_to_one(
    pools: dict[str, TenantPool], tenants: set[str], weighted: bool
) -> None:
    assert sum(shares_of(tenants, pools, weighted=weighted).values()) == pytest.approx(1.0)


@given(pools=_some_pools(), policy=_policies, dice=_dice)
def test_a_successor_that_knows_running_jobs_keeps_caps_and_minimums(
    pools: dict[str, TenantPool], policy: QueuePolicy, dice: random.Random
) -> None:
    first = Cluster(policy, pools)
    for tenant in _TENANTS:
        first.submit(tenant, 20, priority=dice.randint(0, 9))
    first.start(12)

    heir = Cluster(policy, pools)
    heir.numbers = first.numbers
    heir.shares.resolve([(name, lane.tenant, lane) for name, lane in first.running.items()])
    heir.running = dict(first.running)
    for lane, waiting in first.waiting.items():
        heir.submit(lane.tenant, len(waiting) or 1, priority=lane.priority)
    heir.start(12)

    for name, most in _caps(pools).items():
        assert _used_by_pool(heir, pools)[name] <= most
    for name in list(heir.running):
        heir.end(name, 1.0)


@given(policy=_policies, pools=_some_pools(), dice=_dice)
def test_ends_together_have_the_effect_of_ends_one_by_one(
    policy: QueuePolicy, pools: dict[str, TenantPool], dice: random.Random
) -> None:
    together, singly = Cluster(policy, pools), Cluster(policy, pools)
    for _ in range(12):
        submits = [(dice.choice(_TENANTS), dice.randint(1, 4), dice.randint(0, 9)) for _ in range(4)]
        room, now = dice.randint(1, 12), singly.now + dice.choice([0.01, 10.0])
        for cluster in (together, singly):
            cluster.now = now
            for tenant, jobs, priority in submits:
                cluster.submit(tenant, jobs, priority=priority)
            for name, _ in cluster.start(room):
                cluster.shares.start(name, now=now)
        assert together.running == singly.running
        ends = [
            (name, dice.choice([None, 0.0, 0.1, 100.0]))
            for name in dice.sample(list(singly.running), dice.randint(0, len(singly.running)))
        ]
        for name, seconds in ends:
            singly.end(name, seconds)
            del together.running[name]
        together.shares.end_all(ends)
    assert together.start(50) == singly.start(50)
