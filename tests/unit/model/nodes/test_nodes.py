"""Host nodes, allocations and requirements. Pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.nodes import (
    Allocation,
    HostNode,
    JobNeeds,
    NodeTold,
    Placement,
    add_amounts,
    best_fit,
    capacity_of,
    check_labels,
    check_node_name,
    checked_node,
    fits,
    job_needs,
    left_over,
    reservable,
    startable,
    together,
    usage_of,
    why_unplaced,
)


def _node(name: str = "a", **fields: object) -> HostNode:
    told = NodeTold(name=name, capacity={"slots": 8.0, "cpu": 4.0}, labels={"region": "eu"}, runs_jobs=True)
    changes = {key: fields.pop(key) for key in list(fields) if key in NodeTold.__struct_fields__}
    return HostNode(id=name, told=replace(told, **changes), **fields)  # type: ignore[arg-type]


def test_a_node_has_one_state_and_the_worst_counts() -> None:
    assert _node().state == "available"
    assert _node(used={"cpu": 4.0}).state == "busy"
    assert _node(capacity={"gpu": 0.0}).state == "available"
    assert _node(is_busy=True).state == "busy"
    assert _node(is_busy=True, is_draining=True).state == "draining"
    assert _node(is_draining=True, is_lost=True).state == "lost"
    closed = [_node(is_busy=True), _node(is_draining=True), _node(is_lost=True)]
    assert [node.is_open for node in closed] == [False] * 3


def test_the_name_of_a_node_is_also_a_valid_queue_name() -> None:
    assert check_node_name("gpu-1.example.org") == "gpu-1.example.org"
    for name in ("", "-a", "a b", "a" * 129, "a.jobs", "a.dlq"):
        with pytest.raises(InvalidOption, match=r"node|queue"):
            check_node_name(name)


def test_a_report_of_a_node_is_normalised_or_refused() -> None:
    told = NodeTold(name="a", address="10.0.0.7\n", capacity={"cpu": 2.5, "memory": 2.0**30, "gpu": 0.0})

    checked = checked_node(told)

    assert (checked.address, checked.capacity) == ("10.0.0.7", {"cpu": 2.5, "memory": 2.0**30, "gpu": 0.0})
    assert checked_node(NodeTold(name="a")).capacity == {}
    many = {f"r{number}": 1.0 for number in range(33)}
    for capacity in ({"cpu": -1.0}, {"gpu": 0.5}, {"memory": float("inf")}, {"No": 1.0}, many):
        with pytest.raises(InvalidOption, match="node a"):
            checked_node(NodeTold(name="a", capacity=capacity))


def test_labels_are_few_and_short() -> None:
    assert check_labels({"region": "eu"}, what="labels") == {"region": "eu"}
    for labels in ({"": "x"}, {"a": ""}, {"a": "x" * 256}, {f"l{n}": "x" for n in range(33)}):
        with pytest.raises(InvalidOption, match="labels"):
            check_labels(labels, what="labels")


def test_the_requirements_of_a_job_are_checked() -> None:
    assert job_needs() is None
    needs = job_needs(
        {"cpu": 2, "memory": "1G"},
        {"labels": {"region": "eu"}, "prefers": {"zone": "b"}, "patience": 5, "gang": ("g", 2)},
    )
    assert needs is not None
    assert needs.amounts == {"slots": 1.0, "cpu": 2.0, "memory": 2.0**30}
    assert (needs.labels, needs.prefers, needs.patience, needs.gang, needs.gang_size) == (
        {"region": "eu"},
        {"zone": "b"},
        5,
        "g",
        2,
    )
    for options in (
        {"resources": {"cpu": 0}},
        {"resources": {f"r{number}": 1 for number in range(33)}},
        {"place": {"patience": -1}},
        {"place": {"gang": ("g", 1)}},
        {"place": {"gang": ("g", 501)}},
        {"place": {"gang": ("", 2)}},
        {"place": {"label": {"region": "eu"}}},
    ):
        with pytest.raises(InvalidOption):
            job_needs(**options)


def test_amounts_are_added_and_compared_by_name() -> None:
    assert add_amounts({"cpu": 1.0}, {"gpu": 1.0}) == {"cpu": 1.0, "gpu": 1.0}
    assert add_amounts({"cpu": 1.0}, {"cpu": 3.0}, sign=-1.0) == {"cpu": -2.0}
    assert fits({"cpu": 0.3}, {"cpu": 0.1 + 0.2})
    assert not fits({"gpu": 1.0}, {"cpu": 4.0})
    assert left_over({"cpu": 1.0, "odd": 5.0}, {"cpu": 4.0}, {"cpu": 4.0, "gpu": 2.0, "none": 0.0}) == 0.75


def test_the_node_with_the_least_left_over_fits_best() -> None:
    small, large = _node("b", capacity={"slots": 4.0, "cpu": 2.0}), _node("a", capacity={"slots": 4.0, "cpu": 16.0})
    amounts = {"cpu": 2.0}

    assert best_fit(amounts, [large, small]) is small
    assert best_fit(amounts, [large, replace(small, is_draining=True)]) is large
    assert best_fit({"cpu": 32.0}, [large, small]) is None
    twins = [_node("z"), _node("y")]
    assert best_fit(amounts, twins) is twins[1]


def test_an_unplaced_job_reports_the_reason_and_whether_it_can_ever_fit() -> None:
    needs = JobNeeds(resources={"cpu": 3.0})

    def why(*nodes: HostNode, wanted: JobNeeds = needs) -> tuple[str, bool]:
        return why_unplaced(wanted, nodes)

    assert why() == why(_node(runs_jobs=False))
    assert why()[1] is True
    assert why(_node(), wanted=JobNeeds(labels={"region": "us"})) == (
        "unschedulable: none of 1 nodes has the labels region=us",
        True,
    )
    assert why(_node(), wanted=JobNeeds(resources={"gpu": 1.0})) == (
        "unschedulable: it needs slots=1, gpu=1, and no node that fits has more than slots=8, gpu=0",
        True,
    )
    closed = [_node(str(number), is_draining=True) for number in range(5)]
    assert why(*closed) == (
        "all 5 nodes that fit are closed: 0 (draining), 1 (draining), 2 (draining) and 2 others",
        False,
    )
    assert why(closed[0])[0] == "all 1 nodes that fit are closed: 0 (draining)"
    assert "so much is free on none of the 2" in why(_node(used={"cpu": 2.0}), closed[0])[0]
    assert why(_node(), closed[0]) == ("there is room on 1 nodes: it is about to be placed", False)


def test_allocations_are_counted_within_the_requested_period() -> None:
    hour = 3_600_000
    one = Allocation(id="1", node="a", job="j", amounts={"cpu": 2.0}, since=0, ended=2 * hour)
    other = replace(one, id="2", since=hour, ended=None)

    assert usage_of([one, other], since=hour, until=3 * hour) == {"cpu": 2.0 * 1 + 2.0 * 2}
    assert usage_of([one], since=5 * hour, until=6 * hour) == {"cpu": 0.0}


def _want_placement(job: str, node: str, cpu: float, *, epoch: int = 1, gang: str = "") -> Placement:
    return Placement(job=job, tenant="", task="t", node=node, epoch=epoch, amounts={"cpu": cpu}, gang=gang)


def test_reservations_are_made_where_possible() -> None:
    nodes = [_node("a"), _node("b", is_lost=True), _node("c", epoch=2)]
    wanted = [
        _want_placement("1", "a", 3.0),
        _want_placement("2", "a", 2.0),
        _want_placement("3", "a", 1.0),
        _want_placement("4", "b", 1.0),
        _want_placement("5", "c", 1.0),
        _want_placement("6", "c", 1.0, epoch=2),
        _want_placement("7", "nowhere", 1.0),
    ]

    assert [each.job for each in reservable(wanted, nodes)] == ["1", "3", "6"]


_CPUS = st.integers(0, 40).map(lambda number: number / 10)
_WANTED = st.lists(
    st.builds(
        _want_placement,
        st.uuids().map(str),
        st.sampled_from(["a", "b", "c"]),
        _CPUS,
        epoch=st.integers(1, 2),
        gang=st.sampled_from(["", "", "g", "h"]),
    ),
    max_size=30,
)


@given(_WANTED, st.dictionaries(st.sampled_from(["a", "b"]), _CPUS))
def test_no_node_is_overcommitted_and_gangs_are_complete(wanted: list[Placement], used: dict[str, float]) -> None:
    nodes = [_node(name, used={"cpu": amount}) for name, amount in used.items()]

    found = reservable(wanted, nodes)

    for node in nodes:
        given_out = sum(each.amounts["cpu"] for each in found if each.node == node.name)
        assert given_out + node.used["cpu"] <= 4.0 + 1e-6
    assert [each for each in wanted if each in found] == sorted(found, key=wanted.index)
    for gang in ("g", "h"):
        members = [each for each in wanted if each.gang == gang]
        assert sum(each in found for each in members) in (0, len(members))
    assert all(each.epoch == 1 for each in found)


def test_only_nodes_that_accept_jobs_count_as_capacity() -> None:
    nodes = [
        _node("a"),
        _node("b", capacity={"slots": 2.0, "gpu": 1.0}),
        _node("c", is_draining=True),
        _node("d", runs_jobs=False),
    ]

    assert capacity_of(nodes) == {"slots": 10.0, "cpu": 4.0, "gpu": 1.0}


def test_a_gang_starts_only_once_all_of_its_jobs_are_ready() -> None:
    placements = {
        "1": _want_placement("1", "a", 1.0, gang="g"),
        "2": _want_placement("2", "a", 1.0, gang="g"),
        "3": _want_placement("3", "a", 1.0),
        "4": _want_placement("4", "a", 1.0),
    }

    assert [*startable(placements, {"1", "3"})] == ["3"]
    assert [*startable(placements, {"1", "2", "4"})] == ["1", "2", "4"]


def test_jobs_of_a_gang_are_placed_together_and_others_separately() -> None:
    placements = {
        "1": _want_placement("1", "a", 1.0),
        "2": _want_placement("2", "a", 1.0, gang="g"),
        "3": _want_placement("3", "b", 1.0),
        "4": _want_placement("4", "b", 1.0, gang="g"),
    }

    assert together(placements) == [["1"], ["2", "4"], ["3"]]
