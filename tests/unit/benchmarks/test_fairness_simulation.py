"""The claims of `python -m benchmarks.fairness` at a fraction of their size, and the guarantees of the simulator."""

from xml.etree import ElementTree as ET

import pytest

from benchmarks.fairness import scenarios
from benchmarks.fairness.nodes import simulate_locality, simulate_nodes
from benchmarks.fairness.orders import Counted, Drf, Fifo, InstantFair, Ours
from benchmarks.fairness.pictures import bars, lines
from benchmarks.fairness.simulation import Simulation, VirtualJob
from benchmarks.fairness.traces import simulate_trace


@pytest.mark.nightly("tests/unit/scheduler/fairness/test_guarantees.py")
def test_worker_seconds_follow_the_weights_even_if_run_times_differ_a_hundredfold() -> None:
    found = scenarios.flood(jobs=2_000, slots=16, seconds=180.0)

    parts = {
        name: share * 10 / scenarios.WEIGHTS[name] for name, share in found["taskmq weighted"].shares(60).items()
    }
    assert parts == pytest.approx(dict.fromkeys(parts, 1.0), abs=0.05)
    assert scenarios.jain(parts.values()) >= 0.95
    # The results of the other policies for the same input.
    assert found["FIFO"].shares()["bronze"] > 0.95
    assert found["round robin of counts"].shares()["bronze"] > 0.8


def test_a_quiet_tenant_waits_at_most_twice_as_long_during_a_flood() -> None:
    found = scenarios.quiet(jobs=4_000, slots=64, seconds=120.0)

    p95 = {name: scenarios.percentile(responses, 0.95) for name, responses in found.items()}
    assert p95["taskmq weighted"] <= 2 * p95["alone"]
    assert p95["FIFO"] > 10 * p95["alone"]


def test_the_lowest_class_keeps_its_share_unless_classes_are_strict() -> None:
    found = scenarios.strict_flood(jobs=4_000, slots=16, seconds=100.0)

    assert found["60/30/10"]["low"] >= 0.099
    assert found["strict"]["low"] == 0.0


def test_each_of_many_tenants_is_served_in_turn() -> None:
    found = scenarios.decisions(300, count_of=1_000, batch=100)

    assert found.served == 300


def test_a_minimum_is_restored_within_one_run_and_a_cap_holds() -> None:
    outcome = scenarios.lent(slots=16, seconds=90.0)

    counts = dict(outcome.running)
    assert all(running.get("capped", 0) <= 2 for running in counts.values())
    assert counts[20.0].get("guest", 0) == 14
    assert counts[34.0].get("owner", 0) >= 8


@pytest.mark.nightly("tests/unit/scheduler/fairness/test_guarantees.py")
def test_weights_hold_across_schedulers_that_know_only_running_jobs() -> None:
    found = scenarios.killed(jobs=3_000, slots=32, seconds=240.0, every=80.0).shares(60.0)

    parts = {name: share * 10 / scenarios.WEIGHTS[name] for name, share in found.items()}
    assert parts == pytest.approx(dict.fromkeys(parts, 1.0), abs=0.1)


def test_dominant_shares_are_equal() -> None:
    found = scenarios.paper(seconds=200.0)

    assert scenarios.jain(found["taskmq fair"].values()) >= 0.95
    assert scenarios.jain(found["DRF"].values()) >= 0.95
    assert scenarios.jain(found["FIFO"].values()) < 0.8


def test_policies_differ_in_their_goals() -> None:
    found = scenarios.policies(seconds=120.0)

    waits = {
        policy: {tenant: scenarios.percentile(outcome.waits[tenant], 0.95) for tenant in ("web", "urgent")}
        for policy, outcome in found.items()
    }
    assert waits["fifo"]["urgent"] > 10
    assert max(waits[policy]["urgent"] for policy in waits if policy != "fifo") < 4
    assert waits["deadline"]["web"] < waits["weighted"]["web"] < waits["fair"]["web"] < waits["round_robin"]["web"]


@pytest.mark.nightly("tests/unit/scheduler/fairness/test_guarantees.py")
def test_tenants_of_a_small_cluster_modelled_on_traces_get_equal_shares() -> None:
    found = {order: simulate_trace(order, nodes=40, jobs=2_000, tenants=40) for order in ("taskmq fair", "FIFO")}

    ours, fifo = found["taskmq fair"], found["FIFO"]
    assert ours.jain > 0.9 > fifo.jain
    assert ours.starved < fifo.starved / 2
    assert ours.slowdowns[1] < fifo.slowdowns[1]
    assert ours.utilisation == pytest.approx(fifo.utilisation, abs=0.05)
    assert len(ours.shares) == ours.backlogged < 40


def test_jobs_run_in_their_preferred_region_if_they_wait_for_it() -> None:
    anywhere = simulate_locality(patience=None, slots=8, jobs=600)
    preferring = simulate_locality(patience=3.0, slots=8, jobs=600)

    assert anywhere.preferred < 0.5
    assert preferring.preferred >= 0.9
    assert 0 < preferring.wait - anywhere.wait <= 0.75


def test_no_node_is_overcommitted_while_nodes_are_killed() -> None:
    found = simulate_nodes(4, 300, kills=3)

    assert found.over == 0
    assert found.placed == 300 + found.lost
    assert found.lost > 0


@pytest.mark.parametrize("turns", [Ours, Fifo, Counted, InstantFair, lambda: Drf({"cpu": 2.0})])
def test_a_job_that_does_not_fit_waits_for_another_to_end(turns: type[Fifo]) -> None:
    needs = {"slots": 1.0, "cpu": 2.0}
    jobs = [VirtualJob(number, "t", 5.0, needs=needs) for number in range(2)]

    outcome = Simulation(turns(), slots=8, capacities={"cpu": 2.0}).run(jobs)

    assert outcome.waits["t"] == [0.0, 5.0]
    assert (outcome.ended, outcome.until) == (2, 10.0)


def test_charts_are_well_formed() -> None:
    drawn = lines("a < b", {"one": {"x": [(0.0, 0.5), (1.0, 2.0)]}, "none": {}}, unit="u", top=1.0)

    for picture in (drawn, bars("a < b", {"taskmq": 1.0, "other": 0.0}, unit="s")):
        assert ET.fromstring(picture).tag.endswith("svg")
