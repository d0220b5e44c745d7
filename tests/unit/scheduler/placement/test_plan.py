"""Choice of the node for each job."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.nodes import HostNode, JobNeeds, NodeTold, reservable
from taskmq.scheduler.placement import Candidate, NodeRun, plan_placements


def _node(name: str, cpu: float = 4.0, *, used: float = 0.0, labels: dict[str, str] | None = None) -> HostNode:
    told = NodeTold(name=name, capacity={"slots": 16.0, "cpu": cpu}, labels=labels or {}, runs_jobs=True)
    return HostNode(id=name, told=told, used={"cpu": used})


def _job(job: str, cpu: float = 1.0, **fields: object) -> Candidate:
    needs = {name: fields.pop(name) for name in list(fields) if name in JobNeeds.__struct_fields__}
    return Candidate(job, "acme", "t", JobNeeds(resources={"cpu": cpu}, **needs), **fields)  # type: ignore[arg-type]


def _where(candidates: list[Candidate], nodes: list[HostNode], **fields: object) -> dict[str, str]:
    plan = plan_placements(candidates, nodes, now=0.0, **fields)  # type: ignore[arg-type]
    return {each.job: each.node for each in plan.placements}


def test_jobs_go_where_the_least_is_left_over() -> None:
    nodes = [_node("a", 8.0), _node("b", 2.0)]

    assert _where([_job("1", 2.0), _job("2", 2.0), _job("3", 6.0), _job("4", 1.0)], nodes) == {
        "1": "b",
        "2": "a",
        "3": "a",
    }


def test_no_job_goes_to_a_closed_or_unusable_node() -> None:
    told = NodeTold(name="a", capacity={"slots": 1.0, "cpu": 4.0})
    lost = HostNode(id="b", told=NodeTold(name="b", capacity=told.capacity, runs_jobs=True), is_lost=True)

    assert _where([_job("1")], [HostNode(id="a", told=told), lost]) == {}


def test_a_required_label_is_waited_for_and_a_preferred_one_for_a_while() -> None:
    nodes = [_node("eu", labels={"region": "eu"}), _node("us", used=3.0, labels={"region": "us"})]

    assert _where([_job("1", labels={"region": "asia"})], nodes) == {}
    assert _where([_job("1", labels={"region": "eu"}), _job("2", prefers={"region": "eu"})], nodes) == {
        "1": "eu",
        "2": "eu",
    }
    full = [_node("eu", used=4.0, labels={"region": "eu"}), nodes[1]]
    prefers = {"region": "eu"}
    assert _where([_job("1", prefers=prefers, patience=3.0, waited=2.9)], full) == {}
    assert _where([_job("1", prefers=prefers, patience=3.0, waited=3.0)], full) == {"1": "us"}


def test_a_gang_starts_together_or_not_at_all() -> None:
    nodes = [_node("a", 2.0), _node("b", 2.0)]
    pair = {"gang": "g", "gang_size": 2}

    assert _where([_job("1", 2.0, **pair), _job("3"), _job("2", 2.0, **pair)], nodes) == {"1": "a", "2": "b"}
    assert _where([_job("1", 2.0, **pair)], nodes) == {}
    three = [_job(str(number), 2.0, gang="g", gang_size=3) for number in range(3)]
    assert _where([*three, _job("9")], nodes) == {"9": "a"}
    # A returning job is placed alone.
    assert _where([_job("1", 2.0, is_first=False, **pair)], nodes) == {"1": "a"}
    both = [_job("1", 2.0, queue="train", **pair), _job("2", 2.0, queue="train", **pair)]
    plan = plan_placements(both, nodes, now=0.0)
    assert {each.gang for each in plan.placements} == {"train:acme:g"}


def test_placement_respects_the_limits_of_queue_and_tenant_except_for_a_gang() -> None:
    pair = {"gang": "g", "gang_size": 2}
    nodes = [_node("a")]
    jobs = [_job("1"), _job("2", 1.0, **pair), _job("3", 1.0, **pair), _job("4"), _job("5", queue="other")]

    assert sorted(_where(jobs, nodes, most={("", "acme"): 2})) == ["1", "2", "3", "5"]
    assert sorted(_where(jobs, nodes, most={("", "acme"): 1})) == ["1", "5"]
    assert sorted(_where(jobs, nodes, most={("", "acme"): 0, ("other", "acme"): 1})) == ["5"]


def test_gangs_of_one_name_in_two_queues_are_separate() -> None:
    pair = {"gang": "g", "gang_size": 2}
    nodes = [_node("a")]

    assert _where([_job("1", 1.0, queue="x", **pair), _job("2", 1.0, queue="y", **pair)], nodes) == {}
    both = [_job(f"{queue}{number}", 1.0, queue=queue, **pair) for number in range(2) for queue in "xy"]
    plan = plan_placements(both, nodes, now=0.0)
    assert [(each.job, each.gang) for each in plan.placements] == [
        ("x0", "x:acme:g"),
        ("x1", "x:acme:g"),
        ("y0", "y:acme:g"),
        ("y1", "y:acme:g"),
    ]


def test_a_node_is_reserved_for_the_large_job_that_has_waited_longest() -> None:
    nodes = [_node("a", used=2.0)]
    flights = [NodeRun("a", {"cpu": 2.0}, ends=10.0)]
    large, larger = _job("large", 4.0, waited=5.0), _job("larger", 3.0, waited=9.0)

    plan = plan_placements([_job("small", seconds=60.0), large, larger], nodes, flights, now=0.0)

    assert plan.held == "larger"
    # One CPU is free beside it.
    assert [each.job for each in plan.placements] == ["small"]
    assert plan_placements([large, larger], nodes, flights, now=0.0, held="large").held == "large"


def test_small_jobs_that_end_before_the_large_one_starts_are_filled_in() -> None:
    nodes = [_node("a", used=2.0)]
    flights = [NodeRun("a", {"cpu": 1.0}, ends=20.0), NodeRun("a", {"cpu": 1.0}, ends=10.0)]
    large = _job("large", 4.0, waited=5.0)

    short, long = _job("short", seconds=19.0), _job("long", seconds=21.0)

    assert _where([short, long, large], nodes, flights=flights) == {"short": "a"}
    assert _where([large, short, long], nodes, flights=flights) == {"short": "a"}


def test_a_large_job_starts_as_soon_as_enough_runs_have_ended() -> None:
    nodes = [_node("a", 8.0, used=6.0)]
    flights = [NodeRun("a", {"cpu": 2.0}, ends=50.0), NodeRun("a", {"cpu": 4.0}, ends=10.0)]
    large = _job("large", 6.0)

    assert _where([_job("long", 2.0, seconds=11.0), large], nodes, flights=flights) == {}
    assert _where([_job("short", 2.0, seconds=9.0), large], nodes, flights=flights) == {"short": "a"}


def test_a_job_that_fits_beside_a_reservation_uses_the_spare_room_once() -> None:
    nodes = [_node("a", 8.0, used=6.0)]
    flights = [NodeRun("a", {"cpu": 6.0}, ends=10.0)]
    large = _job("large", 7.0)

    assert _where([_job("1", seconds=60.0), _job("2", seconds=60.0), large], nodes, flights=flights) == {"1": "a"}


def test_without_a_known_end_only_jobs_that_fit_beside_a_reservation_start() -> None:
    nodes = [_node("a", used=2.0)]
    plan = plan_placements([_job("1", seconds=0.1), _job("large", 4.0)], nodes, now=0.0)

    assert plan.held == "large"
    assert plan.placements == []
    beside = plan_placements([_job("1", 0.5), _job("large", 3.5)], nodes, now=0.0)
    assert [each.job for each in beside.placements] == ["1"]


def test_the_node_on_which_a_large_job_can_start_first_is_reserved() -> None:
    nodes = [_node("small", 2.0), _node("late", used=4.0), _node("early", used=4.0)]
    flights = [NodeRun("late", {"cpu": 4.0}, ends=30.0), NodeRun("early", {"cpu": 4.0}, ends=-1.0)]

    plan = plan_placements([_job("large", 4.0)], nodes, flights, now=0.0)

    assert (plan.held, plan.placements) == ("large", [])


def test_the_job_with_the_reservation_goes_first_once_there_is_room() -> None:
    nodes = [_node("a")]

    assert _where([_job("small"), _job("large", 4.0)], nodes, held="large") == {"large": "a"}
    assert _where([_job("small"), _job("large", 4.0)], nodes) == {"small": "a"}


def test_a_job_that_can_never_fit_reserves_nothing() -> None:
    plan = plan_placements([_job("huge", 64.0), _job("small")], [_node("a")], now=0.0)

    assert plan.held == ""
    assert [each.job for each in plan.placements] == ["small"]


_CPU = st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0])
_CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.uuids().map(str),
        st.sampled_from(["a", "b"]),
        st.just("t"),
        st.builds(
            JobNeeds,
            resources=st.fixed_dictionaries({"cpu": _CPU}),
            labels=st.sampled_from([{}, {"region": "eu"}]),
            prefers=st.sampled_from([{}, {"region": "eu"}]),
            gang=st.sampled_from(["", "", "g"]),
            gang_size=st.just(2),
        ),
        waited=st.floats(0, 10),
        seconds=st.floats(0, 100),
    ),
    max_size=25,
    unique_by=lambda one: one.job,
)
_NODES = st.lists(
    st.builds(
        _node,
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from([2.0, 4.0, 8.0]),
        used=st.sampled_from([0.0, 1.0, 2.0]),
        labels=st.sampled_from([{}, {"region": "eu"}]),
    ),
    max_size=3,
    unique_by=lambda node: node.name,
)
_FLIGHTS = st.lists(
    st.builds(
        NodeRun,
        st.sampled_from(["n1", "n2"]),
        st.fixed_dictionaries({"cpu": st.just(1.0)}),
        ends=st.floats(-5, 50),
    ),
    max_size=2,
)


@given(_CANDIDATES, _NODES, _FLIGHTS)
def test_every_plan_is_feasible_and_deterministic(
    candidates: list[Candidate], nodes: list[HostNode], flights: list[NodeRun]
) -> None:
    plan = plan_placements(candidates, nodes, flights, now=0.0)

    assert reservable(plan.placements, nodes) == plan.placements
    assert plan == plan_placements(candidates, nodes, flights, now=0.0)
    needs = {one.job: one.needs for one in candidates}
    labels = {node.name: node.told.labels for node in nodes}
    assert all(needs[each.job].labels.items() <= labels[each.node].items() for each in plan.placements)
    assert len({each.job for each in plan.placements}) == len(plan.placements)


@pytest.mark.parametrize("seed", range(10))
def test_a_large_job_starts_under_a_flood_of_small_ones(seed: int) -> None:
    dice = random.Random(seed)
    node, held, large = _node("a"), "", _job("large", 4.0, waited=100.0)
    running: list[NodeRun] = []
    begun = inf
    for second in range(40):
        now = float(second)
        running = [flight for flight in running if flight.ends > now]
        used = sum(flight.amounts["cpu"] for flight in running)
        seconds = dice.uniform(0.5, 4.0)
        small = _job(f"s{second}", dice.choice([0.5, 1.0]), seconds=seconds)
        present = HostNode(id="a", told=node.told, used={"cpu": used, "slots": float(len(running))})

        plan = plan_placements([small, large], [present], running, now=now, held=held)

        held = plan.held
        running += [NodeRun("a", each.amounts, now + seconds) for each in plan.placements]
        if second and any(each.job == "large" for each in plan.placements):
            begun = now
            break
        # The node is busy when the large one arrives.
        if not second:
            running = [NodeRun("a", {"cpu": 1.0}, 3.0)]

    assert begun <= 4.0


def test_the_best_of_the_first_hundred_fitting_nodes_is_taken() -> None:
    nodes = [_node(f"n{number:03}") for number in range(150)] + [_node("z", 1.0)]

    assert _where([_job("1")], nodes) == {"1": "n000"}
    assert len(_where([_job(str(number), 4.0) for number in range(200)], nodes)) == 150
