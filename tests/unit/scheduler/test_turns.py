"""Turns within a queue: policies, pools, caps, minimums, costs. Pure."""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmq.contracts.jobs import Lane
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import (
    EVERY_TENANT,
    Amounts,
    QueuePolicy,
    Sharing,
    TenantPool,
    check_pools,
    path_of,
    read_sharing,
    shares_of,
)
from taskmq.model.topology import POLICIES, Policy
from taskmq.scheduler.fairness import Head, Shares
from taskmq.scheduler.fairness.accounts import Accounts
from taskmq.scheduler.fairness.costs import RunTimes
from taskmq.scheduler.fairness.order import Order

QUEUE = "work"
_FOREVER = float("inf")


class Cluster:
    """Shares with a backlog: decides, starts and ends jobs."""

    def __init__(
        self,
        policy: QueuePolicy | Policy = "fair",
        pools: Mapping[str, TenantPool] | None = None,
        **options: Any,
    ) -> None:
        self.shares = Shares(**options)
        self.waiting: dict[Lane, deque[Head]] = defaultdict(deque)
        self.running: dict[str, Lane] = {}
        self.numbers = count(1)
        self.now = 0.0
        self.ends: list[tuple[float, str]] = []
        self.configure(policy, pools)

    def configure(self, policy: QueuePolicy | Policy, pools: Mapping[str, TenantPool] | None = None) -> None:
        self.policy = policy if isinstance(policy, QueuePolicy) else QueuePolicy(policy=policy)
        self.shares.configure({QUEUE: self.policy}, pools or {})

    def submit(
        self, tenant: str = "", jobs: int = 1, *, priority: int = 4, expires: float = _FOREVER, due: float = 0.0
    ) -> Lane:
        lane = Lane(QUEUE, priority, tenant)
        self.waiting[lane].extend([(due, expires)] * jobs)
        self.shares.arrived(lane, self.waiting[lane][0])
        return lane

    def start(self, room: int = 1, *, found: int | None = None) -> list[tuple[str, Lane]]:
        """Start so many; `found`: so many of each pick were there."""
        started: list[tuple[str, Lane]] = []
        for pick in self.shares.picks(lambda _: room, limit=room, now=self.now):
            waiting = self.waiting[pick.lane]
            for _ in range(min(pick.count, len(waiting), pick.count if found is None else found)):
                waiting.popleft()
                started.append((str(next(self.numbers)), pick.lane))
            if not waiting:
                self.shares.exhausted(pick.lane)
            elif self.shares.wants_heads():
                self.shares.arrived(pick.lane, waiting[0])
        self.shares.taken([(name, lane.tenant, lane) for name, lane in started])
        self.running.update(started)
        return started

    def end(self, name: str, seconds: float | None = 1.0) -> None:
        del self.running[name]
        self.shares.ended(name, seconds)

    def run(self, seconds: Mapping[str, float], *, slots: int, until: float) -> dict[str, float]:
        """Run the backlog; the worker-seconds of each tenant."""
        used: dict[str, float] = defaultdict(float)
        ends = self.ends
        while self.now < until:
            for name, lane in self.start(slots - len(self.running)):
                ends.append((self.now + seconds[lane.tenant], name))
                self.shares.began(name, now=self.now)
            ends.sort(reverse=True)
            self.now, name = ends.pop()
            used[self.running[name].tenant] += seconds[self.running[name].tenant]
            self.end(name, seconds[self.running[name].tenant])
        return used

    def order(self, jobs: int) -> list[Lane]:
        """Whose turn it is, one after the other; each ends at once."""
        found: list[Lane] = []
        for _ in range(jobs):
            for name, lane in self.start():
                found.append(lane)
                self.end(name)
        return found


def _pools(*pools: TenantPool) -> dict[str, TenantPool]:
    return {pool.name: pool for pool in pools}


# Policies


def test_fair_gives_each_tenant_the_same_time_however_long_its_runs_are() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100_000)

    used = cluster.run({"a": 0.1, "b": 10.0}, slots=8, until=600)

    assert used["a"] / used["b"] == pytest.approx(1.0, rel=0.05)


def test_weighted_divides_time_by_weights_and_fair_ignores_them() -> None:
    pools = _pools(TenantPool(name="a", weight=5), TenantPool(name="b", weight=3), TenantPool(name="c", weight=2))
    found: dict[str, dict[str, float]] = {}
    for policy in ("weighted", "fair"):
        cluster = Cluster(policy, pools)
        for tenant in "abc":
            cluster.submit(tenant, 100_000)
        used = cluster.run({"a": 0.1, "b": 1.0, "c": 10.0}, slots=8, until=600)
        found[policy] = {tenant: seconds / sum(used.values()) for tenant, seconds in used.items()}

    assert found["weighted"] == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.02)
    assert found["fair"] == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, abs=0.02)


def test_round_robin_takes_one_job_of_each_however_long_they_run() -> None:
    cluster = Cluster("round_robin")
    for tenant in "ab":
        cluster.submit(tenant, 1000)

    used = cluster.run({"a": 1.0, "b": 9.0}, slots=1, until=500)

    assert used["b"] / used["a"] == pytest.approx(9.0, rel=0.02)


def test_fifo_goes_by_age_whatever_the_priority_and_tenant() -> None:
    cluster = Cluster("fifo")
    lanes = [
        cluster.submit("a", priority=0, due=1.0),
        cluster.submit("b", priority=9, due=2.0),
        cluster.submit("a", priority=4, due=3.0),
    ]

    assert cluster.order(4) == lanes


def test_priority_goes_by_number_and_who_waits_rises() -> None:
    cluster = Cluster(QueuePolicy(policy="priority", ageing=60.0))
    old = cluster.submit("old", priority=3, due=0.0)
    high = cluster.submit("new", priority=5, due=100.0)
    late = cluster.submit("late", priority=4, due=100.0)

    # 100 s of waiting are 1.7 priorities.
    assert cluster.order(3) == [high, old, late]


def test_strict_priority_never_lets_a_lower_one_pass() -> None:
    cluster = Cluster(QueuePolicy(policy="priority", strict=True))
    low = cluster.submit("old", priority=3, due=0.0)
    high = cluster.submit("new", 2, priority=5, due=1e9)

    assert cluster.order(3) == [high, high, low]


def test_strict_classes_go_first_always() -> None:
    cluster = Cluster(QueuePolicy(policy="fair", strict=True))
    low = cluster.submit("a", 5, priority=0)
    seven = cluster.submit("a", 5, priority=7)
    nine = cluster.submit("a", 5, priority=9)

    assert cluster.order(11) == [nine] * 5 + [seven] * 5 + [low]


def test_deadline_takes_the_first_to_expire_within_the_shares_of_classes() -> None:
    cluster = Cluster("deadline")
    late = cluster.submit("a", 10, priority=4, expires=200.0)
    soon = cluster.submit("b", 10, priority=5, expires=100.0)
    low = cluster.submit("c", 100, priority=0, expires=300.0)

    order = cluster.order(40)

    assert [lane for lane in order if lane != low][:20] == [soon] * 10 + [late] * 10
    assert Counter(order[:20])[low] == 5


def test_jobs_of_one_lane_are_taken_for_as_old_as_its_first_for_a_while() -> None:
    shares = Shares()
    shares.configure({QUEUE: QueuePolicy(policy="fifo")}, {})
    old, young = Lane(QUEUE, 4, "old"), Lane(QUEUE, 4, "young")
    shares.refresh([old, young], {old: (1.0, _FOREVER), young: (2.0, _FOREVER)})

    picked = {pick.lane: pick.count for pick in shares.picks(lambda _: 12, limit=12)}

    assert picked == {old: 8, young: 4}
    assert shares.wants_heads()


@pytest.mark.parametrize("kinds", [("high", "low"), ("high", "default", "low")])
def test_a_flood_of_the_highest_class_leaves_the_others_their_shares(kinds: tuple[str, ...]) -> None:
    priority = {"high": 9, "default": 4, "low": 0}
    cluster = Cluster("fair")
    for kind in kinds:
        cluster.submit(kind, 100_000 if kind == "high" else 5_000, priority=priority[kind])

    used = cluster.run(dict.fromkeys(kinds, 1.0), slots=10, until=400)

    assert used["low"] / sum(used.values()) >= 0.099


def test_of_one_tenant_and_class_no_priority_starves_another() -> None:
    cluster = Cluster("fair")
    nine = cluster.submit("a", 1000, priority=9)
    eight = cluster.submit("a", 1000, priority=8)

    order = Counter(cluster.order(100))

    assert order == {nine: 80, eight: 20}


# Pools


def test_a_tree_divides_among_teams_what_their_tenant_has() -> None:
    pools = _pools(
        TenantPool(name="acme", weight=3),
        TenantPool(name="ml", parent="acme", weight=2),
        TenantPool(name="web", parent="acme", weight=1),
        TenantPool(name="zeta", weight=1),
    )
    cluster = Cluster("weighted", pools)
    for tenant in ("ml", "web", "zeta", "acme"):
        cluster.submit(tenant, 100_000)

    used = cluster.run(dict.fromkeys(("ml", "web", "zeta", "acme"), 1.0), slots=8, until=1000)

    total = sum(used.values())
    expected = shares_of(used, pools, weighted=True)
    # Jobs of the pool that has parts stand beside them, with weight 1.
    assert expected == {"ml": 0.375, "web": 0.1875, "acme": 0.1875, "zeta": 0.25}
    assert {tenant: seconds / total for tenant, seconds in used.items()} == pytest.approx(expected, abs=0.02)


def test_what_a_pool_does_not_use_is_lent_and_taken_back_as_runs_end() -> None:
    cluster = Cluster("weighted", _pools(TenantPool(name="owner", weight=9), TenantPool(name="guest")))
    cluster.submit("guest", 100)
    first = cluster.start(10)
    assert len(first) == 10

    cluster.submit("owner", 100)
    for name, _ in first:
        cluster.end(name)
        cluster.start(1)

    assert Counter(lane.tenant for lane in cluster.running.values())["owner"] >= 9


def test_a_pool_below_its_minimum_goes_first() -> None:
    cluster = Cluster("fair", _pools(TenantPool(name="owed", min={"slots": 4.0})))
    cluster.submit("flood", 100)
    started = cluster.start(10)
    cluster.submit("owed", 100)

    for name, _ in started[:4]:
        cluster.end(name)
    assert [lane.tenant for _, lane in cluster.start(4)] == ["owed"] * 4

    # Above it, it takes turns as any other, and what it got counts.
    cluster.end(started[4][0])
    assert [lane.tenant for _, lane in cluster.start(1)] == ["flood"]


def test_minimums_of_more_than_there_is_leave_a_tenth_to_the_others() -> None:
    cluster = Cluster(
        "fair", _pools(TenantPool(name="a", min={"slots": 30.0}), TenantPool(name="b", min={"slots": 10.0}))
    )
    for tenant in ("a", "b", "rest"):
        cluster.submit(tenant, 100)

    started = Counter(lane.tenant for _, lane in cluster.start(20))

    assert started["rest"] >= 1
    assert started["a"] + started["b"] >= 18


def test_a_pool_at_its_cap_waits_and_the_others_use_what_is_left() -> None:
    cluster = Cluster("fair", _pools(TenantPool(name="a", max={"slots": 2.0})))
    cluster.submit("a", 100)
    assert len(cluster.start(10)) == 2
    assert cluster.start(8) == []

    cluster.submit("b", 3)
    assert [lane.tenant for _, lane in cluster.start(8)] == ["b"] * 3
    cluster.end("1")
    assert [lane.tenant for _, lane in cluster.start(8)] == ["a"]


def test_a_cap_of_a_pool_holds_for_all_its_parts_and_classes_together() -> None:
    pools = _pools(
        TenantPool(name="acme", max={"slots": 3.0}), TenantPool(name="ml", parent="acme", min={"slots": 2.0})
    )
    cluster = Cluster("fair", pools)
    cluster.submit("acme", 10, priority=9)
    cluster.submit("ml", 10, priority=0)

    started = cluster.start(10)
    assert Counter(lane.tenant for _, lane in started) == {"ml": 2, "acme": 1}

    # Below its minimum, but the pool above it is full.
    [own] = [name for name, lane in started if lane.tenant == "ml"][:1]
    cluster.submit("acme", 10, priority=4)
    cluster.end(own)
    assert [lane.tenant for _, lane in cluster.start(10)] == ["ml"]


def test_who_is_owed_something_waits_while_the_pool_above_is_full() -> None:
    pools = _pools(
        TenantPool(name="acme", max={"slots": 2.0}), TenantPool(name="ml", parent="acme", min={"slots": 1.0})
    )
    cluster = Cluster("fair", pools)
    cluster.submit("acme", 10)
    assert len(cluster.start(4)) == 2
    cluster.submit("ml", 10)

    assert cluster.start(4) == []
    assert cluster.start(4) == []
    cluster.end("1")
    assert [lane.tenant for _, lane in cluster.start(4)] == ["ml"]


def test_tenants_without_a_pool_have_the_values_of_the_pool_for_all() -> None:
    cluster = Cluster("fair", _pools(TenantPool(name=EVERY_TENANT, max={"slots": 1.0})))
    for tenant in "abc":
        cluster.submit(tenant, 5)

    assert sorted(lane.tenant for _, lane in cluster.start(10)) == ["a", "b", "c"]


def test_new_weights_caps_and_policies_act_on_what_waits_already() -> None:
    cluster = Cluster("weighted", _pools(TenantPool(name="a", weight=1), TenantPool(name="b", weight=1)))
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    cluster.run({"a": 1.0, "b": 1.0}, slots=10, until=50)

    cluster.configure("weighted", _pools(TenantPool(name="a", weight=9), TenantPool(name="b", weight=1)))
    used = cluster.run({"a": 1.0, "b": 1.0}, slots=10, until=150)
    assert used["a"] / sum(used.values()) == pytest.approx(0.9, abs=0.03)

    cluster.configure("weighted", _pools(TenantPool(name="a", max={"slots": 1.0})))
    for name in list(cluster.running):
        cluster.end(name)
    assert Counter(lane.tenant for _, lane in cluster.start(10)) == {"a": 1, "b": 9}


def test_pools_that_cannot_be_are_refused_and_change_nothing() -> None:
    cluster = Cluster("fair", _pools(TenantPool(name="a", max={"slots": 1.0})))
    cluster.submit("a", 5)

    with pytest.raises(InvalidOption, match="no pool 'gone'"):
        cluster.configure("fair", _pools(TenantPool(name="a", parent="gone")))

    assert len(cluster.start(5)) == 1


# Costs


def test_a_run_that_takes_longer_than_expected_is_charged_while_it_runs() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(long, _), (short, _)] = cluster.start(2)
    cluster.shares.began(long, now=0.0)
    cluster.shares.began(long, now=5.0)
    cluster.shares.began("unknown", now=5.0)
    slow = cluster.running[long].tenant

    cluster.now = 100.0
    cluster.end(short, 1.0)

    assert {lane.tenant for _, lane in cluster.start(20)} == {"a", "b"} - {slow}


def test_jobs_in_flight_are_charged_what_the_first_run_of_their_task_has_taken() -> None:
    cluster = Cluster("fair")
    for tenant in ("long", "short"):
        cluster.submit(tenant, 10_000)
    started = cluster.start(40)
    first = {lane.tenant: name for name, lane in reversed(started)}
    cluster.end(first["long"], 10.0)
    cluster.end(first["short"], 0.1)

    order = [lane.tenant for lane in cluster.order(100)]

    # 19 runs of ten seconds are in flight. Each has been charged one second, and those of the other one as well.
    assert order.count("long") == 0


def test_what_was_charged_for_a_late_run_stays_where_the_first_one_was_short() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    started = cluster.start(4)
    late, soon = (name for name, lane in started if lane.tenant == "a")
    cluster.shares.began(late, now=0.0)
    # That it is late is seen with the next turn; nothing was found for that one.
    cluster.shares.picks(lambda _: 1, limit=1, now=100.0)
    cluster.shares.taken([])
    cluster.end(soon, 0.1)
    for name, lane in started:
        if lane.tenant == "b":
            cluster.end(name, 0.1)

    order = [lane.tenant for lane in cluster.order(100)]

    assert order.count("a") == 0


def test_a_run_that_was_charged_more_meanwhile_is_not_late_before_that_time() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    known, ends = (name for name, lane in cluster.start(4) if lane.tenant == "a")
    cluster.shares.began(known, now=0.0)
    cluster.end(ends, 10.0)
    cluster.now = 5.0

    order = [lane.tenant for lane in cluster.order(40)]

    # Twice ten seconds, less the two of the other one that is in flight; and not thirty.
    assert 16 <= order.index("a") <= 20


@pytest.mark.parametrize("ran", [30.0, 990.0])
def test_of_a_run_that_an_earlier_scheduler_began_the_rest_is_charged(ran: float) -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    (known,) = [name for name, lane in cluster.start(2) if lane.tenant == "a"]
    cluster.shares.began(known, now=0.0, ran=ran)

    # It has run for long, and is expected to run for as long again.
    assert [lane.tenant for lane in cluster.order(int(ran) - 1)].count("a") == 0
    cluster.end(known, ran + 5.0)

    # Of 30 seconds 5 are left; both have had turns of one second since.
    order = [lane.tenant for lane in cluster.order(20)]
    assert order[:8].count("a") == 8


def test_a_run_that_was_known_before_is_no_longer_one_that_another_scheduler_began() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(name, lane), (other, _)] = cluster.start(2)
    cluster.shares.began(name, now=0.0)
    cluster.shares.began(name, now=1.0, ran=50.0)
    cluster.shares.began("unknown", now=1.0, ran=50.0)

    cluster.end(other, 1.0)
    cluster.end(name, 1.0)

    assert [each.tenant for each in cluster.order(20)].count(lane.tenant) == 10


def test_a_job_that_was_never_run_costs_nothing_and_one_lost_what_was_expected() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(first, lane)] = cluster.start(1)
    cluster.end(first, 0.0)
    [(again, _)] = cluster.start(1)

    assert cluster.running[again] != lane or cluster.shares
    cluster.end(again, None)
    cluster.shares.ended("unknown", 1.0)
    assert len(cluster.start(4)) == 4


def test_a_tenant_that_was_lent_every_slot_does_not_pay_for_long_runs_later() -> None:
    cluster = Cluster("fair")
    cluster.submit("lent", 1000)
    started = cluster.start(50)
    for name, _ in started:
        cluster.shares.began(name, now=0.0)
    cluster.submit("late", 10_000)
    cluster.now = 100.0
    for name, _ in started:
        cluster.end(name, 100.0)

    order = [lane.tenant for lane in cluster.order(400)]

    # It waits for the other one to have had what one of these runs took.
    assert 99 <= order.index("lent") <= 150
    assert order[200:].count("lent") == pytest.approx(100, abs=2)


def test_a_tenant_that_was_charged_too_much_holds_up_no_other_for_it() -> None:
    cluster = Cluster("fair")
    cluster.submit("first", 10_000)
    [(slow, _)] = cluster.start(1)
    cluster.end(slow, 1000.0)
    started = cluster.start(50)
    for name, _ in started:
        cluster.end(name, 1.0)
    cluster.submit("late", 10_000)

    order = [lane.tenant for lane in cluster.order(100)]

    assert order.count("late") == pytest.approx(50, abs=2)


def test_a_tenant_that_waits_is_served_soon_after_another_was_charged_too_much() -> None:
    cluster = Cluster("fair")
    for tenant in ("wrong", "waits"):
        cluster.submit(tenant, 10_000)
    cluster.run({"wrong": 1000.0, "waits": 10.0}, slots=20, until=3000)
    for name in list(cluster.running):
        cluster.end(name, 1.0)
    cluster.ends.clear()

    order = [lane.tenant for lane in cluster.order(3000)]

    # At most what was in flight of the other one, and what one of its runs was charged.
    assert order.index("waits") <= 2000


def test_pools_below_which_nothing_waits_or_runs_are_forgotten_once_their_debt_is() -> None:
    cluster = Cluster("fair")
    cluster.submit("busy", 10_000)
    for number in range(50):
        cluster.submit(f"once-{number}", 1)
    for name, lane in cluster.start(60):
        cluster.end(name, 50.0 if lane.tenant != "busy" else 0.1)
    cluster.order(1000)
    cluster.shares.refresh([Lane(QUEUE, 4, "busy")])

    assert _remembered(cluster.shares) == {"busy"}


def _remembered(shares: Shares) -> set[str]:
    """The tenants of which something is kept."""
    return {lane.tenant for lane in shares._queues[QUEUE]._leaves}


def test_picks_that_found_no_jobs_are_given_back() -> None:
    cluster = Cluster("fair", _pools(TenantPool(name="a", max={"slots": 3.0})))
    cluster.submit("a", 100)

    assert len(cluster.start(10, found=1)) == 1
    assert len(cluster.start(10)) == 2


def test_one_that_was_away_comes_back_without_saved_turns() -> None:
    cluster = Cluster("fair")
    cluster.submit("busy", 1000)
    cluster.submit("away", 1)
    cluster.order(200)

    cluster.submit("away", 1000)

    assert Counter(lane.tenant for lane in cluster.order(100)) == {"busy": 50, "away": 50}


def test_of_several_resources_the_dominant_one_is_shared() -> None:
    """The example of the DRF paper: 9 CPUs and 18 GB; jobs of <1 CPU, 4 GB> and <3 CPUs, 1 GB>."""
    needs: dict[str, Amounts] = {
        "a": {"slots": 1.0, "cpu": 1.0, "memory": 4.0},
        "b": {"slots": 1.0, "cpu": 3.0, "memory": 1.0},
    }
    cluster = Cluster("fair", needs=lambda lane: needs[lane.tenant], capacities={"cpu": 9.0, "memory": 18.0})
    for tenant in "ab":
        cluster.submit(tenant, 1000)

    started = Counter(lane.tenant for _, lane in cluster.start(5))

    # Dominant shares: 3 x 4/18 = 2 x 3/9.
    assert started == {"a": 3, "b": 2}


def test_caps_of_further_resources_hold_and_one_that_asks_for_none_passes() -> None:
    needs: dict[str, Amounts] = {"gpu": {"slots": 1.0, "gpu": 0.5}, "plain": {"slots": 1.0}}
    cluster = Cluster(
        "fair",
        _pools(TenantPool(name="lab", max={"gpu": 1.0}), *(TenantPool(name=name, parent="lab") for name in needs)),
        needs=lambda lane: needs[lane.tenant],
    )
    for tenant in needs:
        cluster.submit(tenant, 3)

    assert Counter(lane.tenant for _, lane in cluster.start(4))["gpu"] <= 2
    assert len(cluster.running) >= 2


# Values


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: QueuePolicy(policy="fare"), "did you mean 'fair'"),  # type: ignore[arg-type]
        (lambda: QueuePolicy(shares={"high": 1.0}), "for each of high, default, low"),
        (lambda: QueuePolicy(shares={"high": 1.0, "default": 1.0, "low": 0.0}), "above 0"),
        (lambda: QueuePolicy(ageing=0.0), "more than 0"),
        (lambda: QueuePolicy(preempt_after=-1.0), "preempt_after=-1.0: 0 to"),
        (lambda: QueuePolicy(preempt_grace=1e6), "preempt_grace=1000000.0: 0 to"),
        (lambda: QueuePolicy(preempt_most=-1), "preempt_most=-1: 0"),
        (lambda: TenantPool(name="a\n"), "printable"),
        (lambda: TenantPool(name="a", weight=0.0), "weight=0.0"),
        (lambda: TenantPool(name="a", min={"slots": -1.0}), "min of slots=-1.0"),
        (lambda: TenantPool(name="a", min={"slots": 3.0}, max={"slots": 2.0}), "more than its max"),
        (lambda: TenantPool(name=EVERY_TENANT, min={"slots": 3.0}), "promised to none"),
        (lambda: check_pools([TenantPool(name="a"), TenantPool(name="a")]), "described twice"),
        (
            lambda: check_pools([TenantPool(name="a", parent="b"), TenantPool(name="b", parent="a")]),
            "a part of itself",
        ),
        (lambda: check_pools([TenantPool(name="a", parent=EVERY_TENANT), TenantPool(name=EVERY_TENANT)]), "no pool"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Any, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        make()


def test_the_path_of_a_tenant_begins_at_the_queue() -> None:
    pools = _pools(TenantPool(name="acme"), TenantPool(name="ml", parent="acme"))

    assert [pool.name for pool in path_of("ml", pools)] == ["acme", "ml"]
    assert [pool.name for pool in path_of("other", pools)] == ["other"]


# For any sequence

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


_policies = st.builds(QueuePolicy, policy=st.sampled_from(POLICIES), strict=st.booleans())


def _used(cluster: Cluster, pools: Mapping[str, TenantPool]) -> Counter[str]:
    return Counter(pool.name for lane in cluster.running.values() for pool in path_of(lane.tenant, pools))


def _caps(pools: Mapping[str, TenantPool]) -> dict[str, float]:
    caps = {name: pool.max["slots"] for name, pool in pools.items() if "slots" in pool.max and name != EVERY_TENANT}
    for tenant in _TENANTS:
        own = path_of(tenant, pools)[-1]
        if "slots" in own.max:
            caps[tenant] = own.max["slots"]
    return caps


@given(policy=_policies, pools=_some_pools(), dice=st.randoms(use_true_random=False), steps=st.integers(1, 60))
def test_no_cap_is_exceeded_whatever_is_submitted_ended_and_changed(
    policy: QueuePolicy, pools: dict[str, TenantPool], dice: random.Random, steps: int
) -> None:
    cluster = Cluster(policy, pools)
    for _ in range(steps):
        match dice.randrange(5):
            case 0:
                cluster.submit(dice.choice(_TENANTS), dice.randint(1, 5), priority=dice.randint(0, 9))
            case 1:
                before = _used(cluster, pools)
                cluster.start(dice.randint(1, 10), found=dice.choice([None, 1]))
                for name, most in _caps(pools).items():
                    # A cap that came later than what runs is kept from then on.
                    assert _used(cluster, pools)[name] <= max(most, before[name])
            case 2 if cluster.running:
                cluster.end(dice.choice(list(cluster.running)), dice.choice([None, 0.0, 0.1, 100.0]))
            case 3 if cluster.running:
                cluster.shares.began(dice.choice(list(cluster.running)), now=cluster.now)
            case _:
                cluster.now += dice.choice([0.01, 10.0])
                if dice.randrange(4) == 0:
                    pools = {name: _changed(pool, dice) for name, pool in pools.items()}
                    cluster.configure(policy, pools)


def _changed(pool: TenantPool, dice: random.Random) -> TenantPool:
    most = dice.choice([{}, {"slots": 4.0}])
    least = {} if pool.name == EVERY_TENANT else dice.choice([{}, {"slots": 2.0}])
    return TenantPool(name=pool.name, parent=pool.parent, weight=dice.choice([1.0, 3.0]), min=least, max=most)


@given(policy=_policies, pools=_some_pools(), dice=st.randoms(use_true_random=False))
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


@given(
    policy=_policies.filter(lambda policy: not policy.strict),
    pools=_some_pools(),
    backlog=st.lists(st.tuples(st.sampled_from(_TENANTS), st.integers(0, 9)), min_size=1, max_size=12),
)
def test_no_job_starves_behind_a_flood(
    policy: QueuePolicy, pools: dict[str, TenantPool], backlog: list[tuple[str, int]]
) -> None:
    cluster = Cluster(policy, pools)
    for tenant, priority in backlog:
        cluster.submit(tenant, priority=priority, due=cluster.now)
    flood = "b"
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


@settings(max_examples=15)
@given(
    tenants=st.integers(2, 10),
    slots=st.integers(5, 40),
    dice=st.randoms(use_true_random=False),
    longest=st.sampled_from([10.0, 10_000.0]),
)
def test_a_tenant_that_runs_nothing_waits_within_a_bound_whatever_it_had(
    tenants: int, slots: int, dice: random.Random, longest: float
) -> None:
    """Runs take up to `longest`, and are predicted wrongly: it waits at most while each other tenant takes twice
    that, and while what has a slot already comes to its end."""
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
            cluster.shares.began(name, now=cluster.now)
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
def test_a_minimum_is_had_as_soon_as_there_is_room_and_demand(
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
def test_shares_of_all_that_have_jobs_are_one_together(
    pools: dict[str, TenantPool], tenants: set[str], weighted: bool
) -> None:
    assert sum(shares_of(tenants, pools, weighted=weighted).values()) == pytest.approx(1.0)


@given(pools=_some_pools(), policy=_policies, dice=st.randoms(use_true_random=False))
def test_a_successor_that_knows_what_runs_keeps_caps_and_minimums(
    pools: dict[str, TenantPool], policy: QueuePolicy, dice: random.Random
) -> None:
    first = Cluster(policy, pools)
    for tenant in _TENANTS:
        first.submit(tenant, 20, priority=dice.randint(0, 9))
    first.start(12)

    heir = Cluster(policy, pools)
    heir.numbers = first.numbers
    heir.shares.taken([(name, lane.tenant, lane) for name, lane in first.running.items()])
    heir.running = dict(first.running)
    for lane, waiting in first.waiting.items():
        heir.submit(lane.tenant, len(waiting) or 1, priority=lane.priority)
    heir.start(12)

    for name, most in _caps(pools).items():
        assert _used(heir, pools)[name] <= most
    for name in list(heir.running):
        heir.end(name, 1.0)


# The heap below it


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 5))), max_size=40))
def test_an_order_gives_the_least_key_and_of_equal_ones_the_first(steps: list[tuple[str, int | None]]) -> None:
    order: Order[str] = Order()
    places: dict[str, tuple[int, int]] = {}
    for number, (item, key) in enumerate(steps):
        if key is None:
            order.discard(item)
            places.pop(item, None)
        else:
            order.put(item, (key, 0.0))
            places[item] = (key, number)

        assert len(order) == len(places)
        assert order.first() == min(places, key=places.__getitem__, default=None)
        assert all(order.key(item) == (key, 0.0) and item in order for item, (key, _) in places.items())


def test_an_order_holds_no_more_than_it_needs() -> None:
    order: Order[str] = Order()
    order.put("least", (-1e9, 0.0))
    for number in range(10_000):
        order.put("falls", (-float(number), 0.0))

    assert len(vars_of(order)) < 200
    assert order.first() == "least"


def vars_of(order: Order[str]) -> list[Any]:
    heap: list[Any] = order._heap
    return heap


def test_run_times_are_forgotten_from_the_first_on() -> None:
    times = RunTimes()
    for number in range(30_000):
        times.took(f"t{number}", Lane(QUEUE, 4, str(number)), 2.0)
    times.took("last", Lane(QUEUE, 4, "last"), 8.0)

    assert times.expected("last", Lane(QUEUE, 4, "x")) == 8.0
    assert times.expected_next(Lane(QUEUE, 4, "0")) == pytest.approx(3.2)


def test_a_minimum_within_one_that_holds_already_is_promised_once() -> None:
    pools = _pools(
        TenantPool(name="acme", min={"slots": 8.0}),
        TenantPool(name="ml", parent="acme", min={"slots": 8.0, "gpu": 0.0}),
    )
    accounts = Accounts(pools)

    assert accounts.honoured({"slots": 10.0}) == 1.0
    assert accounts.honoured({"slots": 5.0}) == pytest.approx(0.9 * 5 / 8)
    assert accounts.of("acme") is accounts.of("acme")
    assert accounts.honoured({"cpu": 1.0}) == 1.0


# What operators say


def test_what_a_store_has_kept_of_pools_is_read_and_a_pool_has_one_name() -> None:
    assert read_sharing(None) == Sharing()
    assert read_sharing('{"version": 3, "pools": {"a": {"name": "a"}}}').pools == _pools(TenantPool(name="a"))
    with pytest.raises(InvalidOption, match="pool 'a' is listed as 'b'"):
        Sharing(pools={"b": TenantPool(name="a")})


def test_a_queue_goes_by_heads_where_its_policy_does() -> None:
    shares = Shares()
    shares.configure({"old": QueuePolicy(policy="fifo")}, {})

    assert shares.goes_by_heads("old")
    assert not shares.goes_by_heads("other")
