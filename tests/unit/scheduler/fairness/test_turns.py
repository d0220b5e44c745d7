"""Turns within a queue: policies, pools, caps, minimums. Pure."""

from collections import Counter

import pytest

from taskmq.contracts.jobs import Lane
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import (
    EVERY_TENANT,
    QueuePolicy,
    TenantPool,
    shares_of,
)
from taskmq.scheduler.fairness import Shares
from tests.unit.scheduler.fairness.cluster import FOREVER, QUEUE, Cluster, pools_of

# Policies


@pytest.mark.simulation
def test_fair_gives_each_tenant_the_same_time_however_long_its_runs_are() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100_000)

    used = cluster.run({"a": 0.1, "b": 10.0}, slots=8, until=200)

    assert used["a"] / used["b"] == pytest.approx(1.0, rel=0.05)


@pytest.mark.simulation
def test_weighted_divides_time_by_weights_and_fair_ignores_them() -> None:
    pools = pools_of(TenantPool(name="a", weight=5), TenantPool(name="b", weight=3), TenantPool(name="c", weight=2))
    found: dict[str, dict[str, float]] = {}
    for policy in ("weighted", "fair"):
        cluster = Cluster(policy, pools)
        for tenant in "abc":
            cluster.submit(tenant, 100_000)
        used = cluster.run({"a": 0.1, "b": 1.0, "c": 10.0}, slots=8, until=120)
        found[policy] = {tenant: seconds / sum(used.values()) for tenant, seconds in used.items()}

    assert found["weighted"] == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.02)
    assert found["fair"] == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, abs=0.02)


def test_round_robin_takes_one_job_of_each_tenant_whatever_the_run_times() -> None:
    cluster = Cluster("round_robin")
    for tenant in "ab":
        cluster.submit(tenant, 1000)

    used = cluster.run({"a": 1.0, "b": 9.0}, slots=1, until=500)

    assert used["b"] / used["a"] == pytest.approx(9.0, rel=0.02)


def test_fifo_orders_by_age_whatever_the_priority_and_tenant() -> None:
    cluster = Cluster("fifo")
    lanes = [
        cluster.submit("a", priority=0, due=1.0),
        cluster.submit("b", priority=9, due=2.0),
        cluster.submit("a", priority=4, due=3.0),
    ]

    assert cluster.order(4) == lanes


def test_priority_orders_by_number_and_raises_waiting_jobs() -> None:
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


def test_strict_classes_always_go_first() -> None:
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


def test_jobs_of_one_lane_count_as_old_as_its_first_for_a_while() -> None:
    shares = Shares()
    shares.configure({QUEUE: QueuePolicy(policy="fifo")}, {})
    old, young = Lane(QUEUE, 4, "old"), Lane(QUEUE, 4, "young")
    shares.refresh([old, young], {old: (1.0, FOREVER), young: (2.0, FOREVER)})

    picked = {pick.lane: pick.count for pick in shares.picks(lambda _: 12, limit=12)}

    assert picked == {old: 8, young: 4}
    assert shares.goes_by_heads(QUEUE)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(
            ("high", "low"),
            marks=pytest.mark.nightly(
                "tests/unit/scheduler/fairness/test_turns.py::"
                "test_a_flood_of_the_highest_class_leaves_the_others_their_shares"
            ),
        ),
        ("high", "medium", "low"),
    ],
)
def test_a_flood_of_the_highest_class_leaves_the_others_their_shares(kinds: tuple[str, ...]) -> None:
    priority = {"high": 9, "medium": 4, "low": 0}
    cluster = Cluster("fair")
    for kind in kinds:
        cluster.submit(kind, 100_000 if kind == "high" else 5_000, priority=priority[kind])

    used = cluster.run(dict.fromkeys(kinds, 1.0), slots=10, until=200)

    assert used["low"] / sum(used.values()) >= 0.099


def test_within_a_tenant_and_class_no_priority_starves_another() -> None:
    cluster = Cluster("fair")
    nine = cluster.submit("a", 1000, priority=9)
    eight = cluster.submit("a", 1000, priority=8)

    order = Counter(cluster.order(100))

    assert order == {nine: 80, eight: 20}


# Pools


def test_priorities_of_a_tenant_share_its_turns_beside_another_tenant() -> None:
    cluster = Cluster("fair")
    for tenant, priority in (("a", 5), ("a", 4), ("b", 4)):
        cluster.submit(tenant, 100, priority=priority)

    started = Counter((lane.tenant, lane.priority) for _, lane in cluster.start(20))

    assert started == {("a", 5): 8, ("a", 4): 2, ("b", 4): 10}


def test_a_tree_divides_the_share_of_a_tenant_among_its_teams() -> None:
    pools = pools_of(
        TenantPool(name="acme", weight=3),
        TenantPool(name="ml", parent="acme", weight=2),
        TenantPool(name="web", parent="acme", weight=1),
        TenantPool(name="zeta", weight=1),
    )
    cluster = Cluster("weighted", pools)
    for tenant in ("ml", "web", "zeta", "acme"):
        cluster.submit(tenant, 100_000)

    used = cluster.run(dict.fromkeys(("ml", "web", "zeta", "acme"), 1.0), slots=8, until=120)

    total = sum(used.values())
    expected = shares_of(used, pools, weighted=True)
    # Jobs of the pool itself compete with its children, with weight 1.
    assert expected == {"ml": 0.375, "web": 0.1875, "acme": 0.1875, "zeta": 0.25}
    assert {tenant: seconds / total for tenant, seconds in used.items()} == pytest.approx(expected, abs=0.02)


def test_unused_shares_are_lent_and_taken_back_as_runs_end() -> None:
    cluster = Cluster("weighted", pools_of(TenantPool(name="owner", weight=9), TenantPool(name="guest")))
    cluster.submit("guest", 100)
    first = cluster.start(10)
    assert len(first) == 10

    cluster.submit("owner", 100)
    for name, _ in first:
        cluster.end(name)
        cluster.start(1)

    assert Counter(lane.tenant for lane in cluster.running.values())["owner"] >= 9


def test_a_pool_below_its_minimum_goes_first() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="owed", min={"slots": 4.0})))
    cluster.submit("flood", 100)
    started = cluster.start(10)
    cluster.submit("owed", 100)

    for name, _ in started[:4]:
        cluster.end(name)
    assert [lane.tenant for _, lane in cluster.start(4)] == ["owed"] * 4

    # Above its minimum it takes turns like any other, and earlier jobs count.
    cluster.end(started[4][0])
    assert [lane.tenant for _, lane in cluster.start(1)] == ["flood"]


def test_a_pool_whose_minimum_exceeds_its_jobs_leaves_the_rest() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="owed", min={"slots": 4.0}, max={"slots": 4.0})))
    cluster.submit("flood", 100)
    cluster.submit("owed", 1)

    started = [*cluster.start(10), *cluster.start(3)]

    assert Counter(lane.tenant for _, lane in started) == {"owed": 1, "flood": 9}


def test_the_oldest_job_of_a_tree_of_pools_goes_first_in_fifo() -> None:
    cluster = Cluster("fifo", pools_of(TenantPool(name="acme"), TenantPool(name="ml", parent="acme")))
    lanes = [
        cluster.submit("ml", due=1.0),
        cluster.submit("other", due=2.0),
        cluster.submit("acme", due=3.0),
        cluster.submit("ml", priority=9, due=4.0),
    ]

    assert cluster.order(4) == lanes


def test_excessive_minimums_leave_a_tenth_to_the_others() -> None:
    cluster = Cluster(
        "fair", pools_of(TenantPool(name="a", min={"slots": 30.0}), TenantPool(name="b", min={"slots": 10.0}))
    )
    for tenant in ("a", "b", "rest"):
        cluster.submit(tenant, 100)

    started = Counter(lane.tenant for _, lane in cluster.start(20))

    assert started["rest"] >= 1
    assert started["a"] + started["b"] >= 18


def test_a_pool_at_its_cap_waits_and_the_others_use_the_rest() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="a", max={"slots": 2.0})))
    cluster.submit("a", 100)
    assert len(cluster.start(10)) == 2
    assert cluster.start(8) == []

    cluster.submit("b", 3)
    assert [lane.tenant for _, lane in cluster.start(8)] == ["b"] * 3
    cluster.end("1")
    assert [lane.tenant for _, lane in cluster.start(8)] == ["a"]


def test_an_exhausted_lane_of_a_full_pool_leaves_its_turn_to_the_next_lane() -> None:
    cluster = Cluster("fifo", pools_of(TenantPool(name="a", max={"slots": 1.0})))
    first = cluster.submit("a", 2, priority=0, due=1.0)
    last = cluster.submit("a", priority=4, due=2.0)
    assert cluster.start(2) == [("1", first)]

    del cluster.waiting[first]
    cluster.shares.drop(first)

    assert cluster.start(2) == []
    cluster.end("1")
    assert cluster.start(2) == [("2", last)]


def test_a_cap_of_a_pool_holds_for_all_its_children_and_classes_together() -> None:
    pools = pools_of(
        TenantPool(name="acme", max={"slots": 3.0}), TenantPool(name="ml", parent="acme", min={"slots": 2.0})
    )
    cluster = Cluster("fair", pools)
    cluster.submit("acme", 10, priority=9)
    cluster.submit("ml", 10, priority=0)

    started = cluster.start(10)
    assert Counter(lane.tenant for _, lane in started) == {"ml": 2, "acme": 1}

    # Below its minimum, but its parent is full.
    [own] = [name for name, lane in started if lane.tenant == "ml"][:1]
    cluster.submit("acme", 10, priority=4)
    cluster.end(own)
    assert [lane.tenant for _, lane in cluster.start(10)] == ["ml"]


def test_a_pool_below_its_minimum_waits_while_its_parent_is_full() -> None:
    pools = pools_of(
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


def test_tenants_without_a_pool_have_the_values_of_the_default_pool() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name=EVERY_TENANT, max={"slots": 1.0})))
    for tenant in "abc":
        cluster.submit(tenant, 5)

    assert sorted(lane.tenant for _, lane in cluster.start(10)) == ["a", "b", "c"]


def test_new_weights_caps_and_policies_apply_to_waiting_jobs() -> None:
    cluster = Cluster("weighted", pools_of(TenantPool(name="a", weight=1), TenantPool(name="b", weight=1)))
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    cluster.run({"a": 1.0, "b": 1.0}, slots=10, until=50)

    cluster.configure("weighted", pools_of(TenantPool(name="a", weight=9), TenantPool(name="b", weight=1)))
    used = cluster.run({"a": 1.0, "b": 1.0}, slots=10, until=150)
    assert used["a"] / sum(used.values()) == pytest.approx(0.9, abs=0.03)

    cluster.configure("weighted", pools_of(TenantPool(name="a", max={"slots": 1.0})))
    for name in list(cluster.running):
        cluster.end(name)
    assert Counter(lane.tenant for _, lane in cluster.start(10)) == {"a": 1, "b": 9}


def test_invalid_pools_are_refused_and_change_nothing() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="a", max={"slots": 1.0})))
    cluster.submit("a", 5)

    with pytest.raises(InvalidOption, match="its parent 'gone' does not exist"):
        cluster.configure("fair", pools_of(TenantPool(name="a", parent="gone")))

    assert len(cluster.start(5)) == 1


def test_a_queue_compares_lane_heads_if_its_policy_does() -> None:
    shares = Shares()
    shares.configure({"old": QueuePolicy(policy="fifo")}, {})

    assert shares.goes_by_heads("old")
    assert not shares.goes_by_heads("other")
