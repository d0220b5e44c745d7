"""The doctor's findings about a node, its user and its cluster."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.finding import Finding
from taskmq_rabbitmq.admin.diagnosis import (
    Rights,
    api_findings,
    blocked_findings,
    clock_findings,
    erlang_findings,
    flag_findings,
    node_findings,
    right_findings,
    version_findings,
)
from taskmq_rabbitmq.admin.inspection import NodeFacts


def level_of(findings: list[Finding]) -> str:
    """Return the level of the only finding, which has a remedy unless it is ok."""
    ((level, _, _, remedy),) = findings
    assert bool(remedy) == (level != "ok")
    return level


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        (None, "warning", "does not say"),
        ((3, 8, 9), "problem", "before 3.10"),
        ((3, 9, 29), "problem", "before 3.10"),
        ((3, 10, 8), "warning", "since September 2022"),
        ((3, 13, 7), "warning", "since September 2024"),
        ((4, 0, 5), "warning", "since April 2025"),
        ((4, 2, 9), "warning", "since 4.3 is out"),
        ((4, 3, 6), "ok", "4.3.6"),
        ((4, 4, 0), "warning", "not tested"),
        ((5,), "warning", "not tested"),
    ],
)
def test_each_version_has_a_verdict_and_each_bad_one_a_remedy(
    version: tuple[int, ...] | None, level: str, words: str
) -> None:
    found = version_findings(version)

    assert level_of(found) == level
    assert words in found[0][2]
    assert found[0][1] == "rabbitmq"


@pytest.mark.parametrize(
    ("version", "way"),
    [((3, 10, 8), "3.13 and 4.2"), ((3, 13, 7), "4.2"), ((4, 0, 5), "4.2"), ((4, 2, 1), "upgrade to 4.3")],
)
def test_the_upgrade_path_skips_no_version(version: tuple[int, ...], way: str) -> None:
    ((_, _, _, remedy),) = version_findings(version)

    assert way in remedy


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("25.2.3", "ok"),
        ("25.0.1", "problem"),
        ("24.3.4.2", "ok"),
        ("24.3.4.1", "problem"),
        ("22.1", "problem"),
        ("27", "ok"),
    ],
)
def test_an_erlang_with_a_critical_vulnerability_is_a_problem(text: str, level: str) -> None:
    assert level_of(erlang_findings(text)) == level


@pytest.mark.parametrize("text", [None, "", "unknown", "29.1-rc1"])
def test_an_unknown_erlang_version_breaks_nothing(text: str | None) -> None:
    assert [level for level, *_ in erlang_findings(text)] in ([], ["ok"])


def test_unexamined_parts_are_reported() -> None:
    assert level_of(api_findings(None, "http://host:15672")) == "ok"
    found = api_findings("no answer", "http://host:15672")
    assert level_of(found) == "warning"
    assert "alarms" in found[0][2]
    assert "no answer" in found[0][2]


@pytest.mark.parametrize(
    ("rights", "declares", "level", "words"),
    [
        (Rights(declare=True, send=True, delay=True, consume=True, operate=True), True, "ok", "every role"),
        (Rights(declare=True, send=True, delay=True, operate=True), True, "ok", "every role"),
        (Rights(declare=False, send=True, delay=True, consume=True, operate=False), False, "ok", "a worker"),
        (Rights(declare=False, send=True, delay=True, consume=False, operate=False), False, "ok", "a producer"),
        (Rights(declare=False, send=True, delay=True), False, "ok", "--app"),
        (Rights(declare=False, send=True, delay=True, consume=True), True, "problem", "configure"),
        (Rights(send=True, delay=True, consume=True, report=False), False, "ok", "enough for a server"),
        (Rights(send=False, dispatch=True), False, "ok", "enough for a scheduler"),
        (Rights(send=False), True, "problem", "exchange 'taskmq'"),
        (Rights(is_fresh=True), True, "ok", "not tried"),
        (Rights(send=True, delay=False), False, "problem", "delay ladder"),
        (Rights(), True, "warning", "could not be tried"),
    ],
)
def test_permissions_are_checked_against_the_roles(rights: Rights, declares: bool, level: str, words: str) -> None:
    found = right_findings(rights, user="joe", declares=declares)

    assert level_of(found) == level
    assert words in found[0][2]
    assert "'joe'" in found[0][2]


def test_a_broker_that_blocks_publishing_is_a_problem() -> None:
    assert blocked_findings(None) == []
    assert level_of(blocked_findings("low on memory")) == "problem"
    assert level_of(blocked_findings("")) == "problem"


def node(**facts: Any) -> NodeFacts:
    known = {"name": "rabbit@a", "running": True, "memory_alarm": False, "disk_alarm": False, "partitions": ()}
    return NodeFacts(**{**known, **facts})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"running": False}, "down"),
        ({"memory_alarm": True}, "memory alarm"),
        ({"disk_alarm": True}, "disk alarm"),
        ({"partitions": ("rabbit@b",)}, "rabbit@b"),
        ({"descriptors_used": 95, "descriptors": 100}, "95 of 100 file descriptors"),
        ({"sockets_used": 950, "sockets": 1000}, "950 of 1,000 sockets"),
        ({"sockets": 832, "sockets_used": 30, "reserved": 900, "quorum_queues": 300}, "930 of 927 file handles"),
        ({"sockets": 832, "reserved": 900, "quorum_queues": 300}, "900 of them reserved for 300 quorum queues"),
    ],
)
def test_a_node_with_an_active_alarm_is_a_problem(facts: dict[str, Any], words: str) -> None:
    found = node_findings([node(name="rabbit@b"), node(**facts)])

    assert level_of(found) == "problem"
    assert words in found[0][2]
    assert found[0][1] == "rabbit@a"


@pytest.mark.parametrize(
    "facts",
    [
        {"descriptors_used": 80, "descriptors": 100},
        {"sockets_used": 94, "sockets": 100},
        {"sockets": 832, "reserved": 742, "quorum_queues": 247},
    ],
)
def test_nearly_reached_limits_are_a_warning_with_a_remedy(facts: dict[str, Any]) -> None:
    found = node_findings([node(**facts)])

    assert level_of(found) == "warning"
    assert "LimitNOFILE" in found[0][3]


@pytest.mark.parametrize(
    "facts",
    [
        {"descriptors_used": 79, "descriptors": 100},
        # RabbitMQ 4.x counts no sockets, and reserves nothing.
        {"descriptors_used": 40, "descriptors": 1024, "sockets_used": 0, "sockets": 0},
        {"sockets": 832, "sockets_used": 10, "reserved": 693, "quorum_queues": 231},
    ],
)
def test_distant_or_unknown_limits_are_not_a_finding(facts: dict[str, Any]) -> None:
    assert level_of(node_findings([node(**facts)])) == "ok"


def test_healthy_nodes_are_one_line() -> None:
    assert level_of(node_findings([node(descriptors_used=10, descriptors=100), node(name="rabbit@b")])) == "ok"
    assert node_findings([]) == []


def test_feature_flags_required_for_delays_must_be_enabled_before_4() -> None:
    on = {"quorum_queue": "enabled", "stream_queue": "enabled", "other": "disabled"}

    assert level_of(flag_findings(on, (3, 10, 8))) == "ok"
    assert level_of(flag_findings({**on, "stream_queue": "disabled"}, (3, 10, 8))) == "problem"
    assert level_of(flag_findings({**on, "quorum_queue": "unavailable"}, None)) == "problem"
    assert flag_findings({"stream_queue": "disabled"}, (4, 0)) == []


@pytest.mark.parametrize(
    ("offset", "error", "level", "words"),
    [
        (0, 500, "ok", "within"),
        (-2_400, 500, "ok", "within"),
        (2_600, 500, "warning", "ahead of"),
        (-29_000, 0, "warning", "behind"),
        (60_500, 500, "problem", "60 s ahead of"),
        (-60_500, 500, "problem", "60 s behind"),
    ],
)
def test_clocks_that_differ_by_seconds_are_reported(offset: int, error: int, level: str, words: str) -> None:
    found = clock_findings(offset, error, about="rabbitmq")

    assert level_of(found) == level
    assert words in found[0][2]


def test_an_invisible_clock_is_not_judged() -> None:
    assert clock_findings(None, 0, about="rabbitmq") == []


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6))
def test_a_difference_within_the_measuring_error_is_not_reported(offset: int, error: int) -> None:
    found = clock_findings(offset, error, about="x")

    assert (level_of(found) == "ok") == (abs(offset) - error < 2_000)
