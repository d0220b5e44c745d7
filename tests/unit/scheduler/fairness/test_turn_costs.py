"""Charges for runs, and their effect on turns. Pure."""

from collections import Counter

import pytest

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import (
    Amounts,
    TenantPool,
)
from taskmq.scheduler.fairness import Shares
from taskmq.scheduler.fairness.accounts import Accounts
from taskmq.scheduler.fairness.costs import RunTimes
from tests.unit.scheduler.fairness.cluster import QUEUE, Cluster, pools_of


def test_a_run_longer_than_expected_is_charged_while_it_runs() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(long, _), (short, _)] = cluster.start(2)
    cluster.shares.start(long, now=0.0)
    cluster.shares.start(long, now=5.0)
    cluster.shares.start("unknown", now=5.0)
    slow = cluster.running[long].tenant

    cluster.now = 100.0
    cluster.end(short, 1.0)

    assert {lane.tenant for _, lane in cluster.start(20)} == {"a", "b"} - {slow}


def test_jobs_in_flight_are_charged_the_duration_of_the_first_run_of_their_task() -> None:
    cluster = Cluster("fair")
    for tenant in ("long", "short"):
        cluster.submit(tenant, 10_000)
    started = cluster.start(40)
    first = {lane.tenant: name for name, lane in reversed(started)}
    cluster.end(first["long"], 10.0)
    cluster.end(first["short"], 0.1)

    order = [lane.tenant for lane in cluster.order(100)]

    # 19 runs of ten seconds are in flight. Each has been charged one second, like those of the other tenant.
    assert order.count("long") == 0


def test_the_charge_for_a_late_run_remains_after_a_short_first_run() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    started = cluster.start(4)
    late, soon = (name for name, lane in started if lane.tenant == "a")
    cluster.shares.start(late, now=0.0)
    # The next turn notices the delay; it found no job.
    cluster.shares.picks(lambda _: 1, limit=1, now=100.0)
    cluster.shares.resolve([])
    cluster.end(soon, 0.1)
    for name, lane in started:
        if lane.tenant == "b":
            cluster.end(name, 0.1)

    order = [lane.tenant for lane in cluster.order(100)]

    assert order.count("a") == 0


def test_a_run_with_an_increased_charge_is_not_late_before_that_time() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    known, ends = (name for name, lane in cluster.start(4) if lane.tenant == "a")
    cluster.shares.start(known, now=0.0)
    cluster.end(ends, 10.0)
    cluster.now = 5.0

    order = [lane.tenant for lane in cluster.order(40)]

    # Twice ten seconds, minus the two of the other tenant's job in flight; and not thirty.
    assert 16 <= order.index("a") <= 20


@pytest.mark.parametrize("ran", [30.0, 990.0])
def test_the_rest_of_a_run_of_an_earlier_scheduler_is_charged(ran: float) -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 10_000)
    (known,) = [name for name, lane in cluster.start(2) if lane.tenant == "a"]
    cluster.shares.start(known, now=0.0, ran=ran)

    # It has run for long, and is expected to run for the same time again.
    assert [lane.tenant for lane in cluster.order(int(ran) - 1)].count("a") == 0
    cluster.end(known, ran + 5.0)

    # Of 30 seconds 5 are left; both have had turns of one second since.
    order = [lane.tenant for lane in cluster.order(20)]
    assert order[:8].count("a") == 8


def test_a_run_known_before_does_not_count_as_one_of_another_scheduler() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(name, lane), (other, _)] = cluster.start(2)
    cluster.shares.start(name, now=0.0)
    cluster.shares.start(name, now=1.0, ran=50.0)
    cluster.shares.start("unknown", now=1.0, ran=50.0)

    cluster.end(other, 1.0)
    cluster.end(name, 1.0)

    assert [each.tenant for each in cluster.order(20)].count(lane.tenant) == 10


def test_a_job_that_never_ran_is_free_and_a_lost_one_costs_the_expected_time() -> None:
    cluster = Cluster("fair")
    for tenant in "ab":
        cluster.submit(tenant, 100)
    [(first, lane)] = cluster.start(1)
    cluster.end(first, 0.0)
    [(again, _)] = cluster.start(1)

    assert cluster.running[again] != lane or cluster.shares
    cluster.end(again, None)
    cluster.shares.end("unknown", 1.0)
    assert len(cluster.start(4)) == 4


def test_a_job_that_is_dispatched_again_is_in_flight_once() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="a", max={"slots": 2.0})))
    cluster.submit("a", 10)
    [(name, lane)] = cluster.start(1)

    cluster.shares.resolve([(name, lane.tenant, lane)])

    assert len(cluster.start(9)) == 1


def test_a_tenant_lent_every_slot_does_not_pay_for_long_runs_later() -> None:
    cluster = Cluster("fair")
    cluster.submit("lent", 1000)
    started = cluster.start(50)
    for name, _ in started:
        cluster.shares.start(name, now=0.0)
    cluster.submit("late", 10_000)
    cluster.now = 100.0
    for name, _ in started:
        cluster.end(name, 100.0)

    order = [lane.tenant for lane in cluster.order(400)]

    # It waits until the other tenant has received the time of one of these runs.
    assert 99 <= order.index("lent") <= 150
    assert order[200:].count("lent") == pytest.approx(100, abs=2)


def test_an_overcharged_tenant_delays_no_other_tenant() -> None:
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


def test_a_waiting_tenant_is_served_soon_after_another_was_overcharged() -> None:
    cluster = Cluster("fair")
    for tenant in ("wrong", "waits"):
        cluster.submit(tenant, 10_000)
    cluster.run({"wrong": 1000.0, "waits": 10.0}, slots=20, until=3000)
    for name in list(cluster.running):
        cluster.end(name, 1.0)
    cluster.ends.clear()

    order = [lane.tenant for lane in cluster.order(3000)]

    # At most the other tenant's jobs in flight, and the charge of one of its runs.
    assert order.index("waits") <= 2000


def test_idle_pools_are_forgotten_once_their_debt_is_paid() -> None:
    cluster = Cluster("fair")
    cluster.submit("busy", 10_000)
    for number in range(50):
        cluster.submit(f"once-{number}", 1)
    for name, lane in cluster.start(60):
        cluster.end(name, 50.0 if lane.tenant != "busy" else 0.1)
    cluster.order(1000)
    cluster.shares.refresh([Lane(QUEUE, 4, "busy")])

    assert _remembered_tenants(cluster.shares) == {"busy"}


def _remembered_tenants(shares: Shares) -> set[str]:
    """Return the tenants with stored data."""
    return {lane.tenant for lane in shares._queues[QUEUE]._tree._leaves}


def test_picks_without_jobs_are_refunded() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="a", max={"slots": 3.0})))
    cluster.submit("a", 100)

    assert len(cluster.start(10, found=1)) == 1
    assert len(cluster.start(10)) == 2


def test_a_returning_tenant_has_no_saved_turns() -> None:
    cluster = Cluster("fair")
    cluster.submit("busy", 1000)
    cluster.submit("away", 1)
    cluster.order(200)

    cluster.submit("away", 1000)

    assert Counter(lane.tenant for lane in cluster.order(100)) == {"busy": 50, "away": 50}


def test_the_dominant_of_several_resources_is_shared() -> None:
    """The example of the DRF paper: 9 CPUs and 18 GB; jobs of <1 CPU, 4 GB> and <3 CPUs, 1 GB>."""
    needs: dict[str, Amounts] = {
        "a": {"slots": 1.0, "cpu": 1.0, "memory": 4.0},
        "b": {"slots": 1.0, "cpu": 3.0, "memory": 1.0},
    }
    cluster = Cluster("fair", needs=needs, capacities={"slots": 18.0, "cpu": 9.0, "memory": 18.0})
    for tenant in "ab":
        cluster.submit(tenant, 1000)
    # The resources of a lane's jobs are known after its first job.
    first = [name for name, _ in cluster.start(2)]

    started = Counter(lane.tenant for _, lane in cluster.start(3))

    # Dominant shares: 3 x 4/18 = 2 x 3/9.
    assert {cluster.running[name].tenant for name in first} == {"a", "b"}
    assert started == {"a": 2, "b": 1}


def test_a_tenant_of_large_jobs_gets_fewer_of_them() -> None:
    needs: dict[str, Amounts] = {"large": {"slots": 1.0, "cpu": 4.0}}
    cluster = Cluster("fair", needs=needs, capacities={"slots": 16.0, "cpu": 16.0})
    for tenant in ("large", "small"):
        cluster.submit(tenant, 1000)

    assert Counter(lane.tenant for lane in cluster.order(500)) == {"large": 100, "small": 400}


def test_a_job_counts_by_its_slots_while_node_resources_are_unknown() -> None:
    cluster = Cluster("fair", needs={"large": {"slots": 1.0, "cpu": 4.0}})
    for tenant in ("large", "small"):
        cluster.submit(tenant, 1000)

    assert Counter(lane.tenant for lane in cluster.order(100)) == {"large": 50, "small": 50}

    cluster.shares.resize(QUEUE, {"slots": 16.0, "cpu": 16.0})

    assert Counter(lane.tenant for lane in cluster.order(500)) == {"large": 100, "small": 400}


def test_jobs_larger_than_expected_are_charged_at_once() -> None:
    cluster = Cluster("fair", needs={"large": {"slots": 1.0, "cpu": 8.0}}, capacities={"slots": 16.0, "cpu": 16.0})
    for tenant in ("large", "small"):
        cluster.submit(tenant, 1000)

    assert Counter(lane.tenant for _, lane in cluster.start(2)) == {"large": 1, "small": 1}
    assert Counter(lane.tenant for _, lane in cluster.start(7)) == {"small": 7}


def test_a_minimum_of_a_resource_is_for_jobs_that_use_it() -> None:
    pools = pools_of(TenantPool(name="lab", min={"gpu": 2.0}))
    capacities = {"slots": 16.0, "gpu": 4.0}
    cluster = Cluster("fair", pools, needs={"lab": {"slots": 1.0, "gpu": 1.0}}, capacities=capacities)
    for tenant in ("lab", *"abcdef"):
        cluster.submit(tenant, 1000)
    # Each has had a turn, so the lab's jobs are known to take a GPU.
    cluster.start(7)

    assert [lane.tenant for _, lane in cluster.start(1)] == ["lab"]
    assert "lab" not in {lane.tenant for _, lane in cluster.start(5)}


def test_a_minimum_of_a_resource_gives_no_turns_to_jobs_without_it() -> None:
    cluster = Cluster("fair", pools_of(TenantPool(name="lab", min={"gpu": 2.0})))
    for tenant in ("lab", "other"):
        cluster.submit(tenant, 1000)

    assert Counter(lane.tenant for lane in cluster.order(100)) == {"lab": 50, "other": 50}


def test_a_learned_size_above_one_slot_is_known_after_a_change() -> None:
    large: dict[str, Amounts] = {"large": {"slots": 1.0, "cpu": 4.0}}
    cluster = Cluster("fair", needs=large, capacities={"slots": 16.0, "cpu": 16.0})
    for tenant in ("large", "small"):
        cluster.submit(tenant, 1000)
    cluster.start(2)
    cluster.configure("weighted")

    assert Counter(lane.tenant for _, lane in cluster.start(3)) == {"small": 3}
    # From here on its jobs are small ones, too.
    cluster.needs = {}
    for name in list(cluster.running):
        cluster.end(name, None)
    cluster.order(20)
    assert Counter(lane.tenant for lane in cluster.order(100)) == {"large": 50, "small": 50}


def test_run_times_are_forgotten_in_order_of_age() -> None:
    times = RunTimes()
    for number in range(30_000):
        times.record_run(f"t{number}", Lane(QUEUE, 4, str(number)), 2.0)
    times.record_run("last", Lane(QUEUE, 4, "last"), 8.0)

    assert times.expect("last", Lane(QUEUE, 4, "x")) == 8.0
    assert times.expected_next(Lane(QUEUE, 4, "0")) == pytest.approx(3.2)


def test_a_nested_minimum_is_guaranteed_only_once() -> None:
    pools = pools_of(
        TenantPool(name="acme", min={"slots": 8.0}),
        TenantPool(name="ml", parent="acme", min={"slots": 8.0, "gpu": 0.0}),
    )
    accounts = Accounts(pools)

    assert accounts.honourable_part({"slots": 10.0}) == 1.0
    assert accounts.honourable_part({"slots": 5.0}) == pytest.approx(0.9 * 5 / 8)
    assert accounts.of("acme") is accounts.of("acme")
    assert accounts.honourable_part({"cpu": 1.0}) == 1.0


def test_the_account_of_the_own_jobs_of_a_pool_is_forgotten_without_its_children() -> None:
    accounts = Accounts(pools_of(TenantPool(name="acme"), TenantPool(name="ml", parent="acme")))
    own, part = accounts.of("acme"), accounts.of("ml")
    assert own.parent is part.parent

    accounts.forget(own)

    assert accounts.of("ml") is part
    assert accounts.of("acme") is not own
    assert accounts.of("acme").parent is part.parent
