"""Policies and permissions as the operator reads them."""

import json
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.topology_plan import QueueTuning, Role
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.policies import exactly, parse_version, permissions, policies

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
MINUTE = 60.0


def keys(tuning: QueueTuning, version: str) -> dict[str, object]:
    """Return the settings in the policy of a queue."""
    found: dict[str, object] = {}
    for instruction in policies([tuning], parse_version(version), vhost="/"):
        if instruction.about.startswith("taskmq."):
            found = json.loads(shlex.split(instruction.shell)[-1])
    return found


@given(wanted=st.lists(names, min_size=1, unique=True), other=names)
def test_a_pattern_matches_exactly_its_names(wanted: list[str], other: str) -> None:
    pattern = exactly(wanted)

    assert all(re.search(pattern, name) for name in wanted)
    assert bool(re.search(pattern, other)) == (other in wanted)


def test_names_are_quoted_for_the_shell_and_escaped_in_patterns() -> None:
    queue = WorkQueue("a b.c;$(rm)'")

    (instruction,) = policies([QueueTuning(queue=queue)], (4, 0), vhost="shop 1")

    *command, name, pattern, definition = shlex.split(instruction.shell)
    assert command[:4] == ["rabbitmqctl", "set_policy", "--apply-to", "queues"]
    assert command[4:] == ["-p", "shop 1", "--priority", "10", "--"]
    assert name == "taskmq.a b.c;$(rm)'"
    assert re.search(pattern, "a b.c;$(rm)'.p.high")
    assert not re.search(pattern, "a bxc;$(rm)'")
    assert json.loads(definition) == {"consumer-timeout": 30 * 24 * 3600 * 1000}
    assert instruction.request is not None
    assert instruction.request["path"] == "/api/policies/shop%201/taskmq.a%20b.c%3B%24%28rm%29%27"


@pytest.mark.parametrize(
    ("longest", "version", "expected"),
    [
        (10 * MINUTE, "4.0", {}),
        (20 * MINUTE, "3.12", {"consumer-timeout": 70 * 60 * 1000}),
        (20 * MINUTE, "4.2.1", {"consumer-timeout": 70 * 60 * 1000}),
        (20 * MINUTE, "4.3", {}),
        (20 * MINUTE, "3.10", {}),
        (None, "4.0", {"consumer-timeout": 30 * 24 * 3600 * 1000}),
    ],
)
def test_the_consumer_timeout_follows_from_the_time_limits_of_the_tasks(
    longest: float | None, version: str, expected: dict[str, object]
) -> None:
    assert keys(QueueTuning(queue=WorkQueue("q"), longest=longest), version) == expected


def test_the_node_sets_the_consumer_timeout_before_3_12_and_the_consumer_from_4_2() -> None:
    tuning = [
        QueueTuning(queue=WorkQueue("a"), longest=20 * MINUTE),
        QueueTuning(queue=WorkQueue("b"), longest=60 * MINUTE),
        QueueTuning(queue=WorkQueue("c"), longest=1),
    ]

    (old,) = policies(tuning, (3, 10, 8), vhost="/")
    (new,) = policies(tuning, (4, 3, 6), vhost="/")

    assert "consumer_timeout = 9000000" in old.note
    assert "consumer_timeout, 9000000" in old.shell
    assert "'a', 'b'" in old.note
    assert "'c'" not in old.note
    assert (new.shell, new.request) == ("", None)


def test_all_settings_of_a_queue_are_one_policy() -> None:
    tuning = QueueTuning(queue=WorkQueue("q", max_length=100), longest=1, max_length=50, return_delay=1.5)

    assert keys(tuning, "4.3") == {
        "max-length": 50,
        "overflow": "reject-publish",
        "delayed-retry-type": "returned",
        "delayed-retry-min": 1500,
        "delayed-retry-max": 1500,
    }


def test_only_quorum_queues_of_4_3_delay_returned_messages() -> None:
    with pytest.raises(UnsupportedFeature, match=r"4\.3"):
        policies([QueueTuning(queue=WorkQueue("q"), longest=1, return_delay=1)], (4, 2), vhost="/")

    assert keys(QueueTuning(queue=WorkQueue("q", "classic"), longest=1, return_delay=1), "4.3") == {}


def test_a_limit_by_policy_needs_a_queue_with_an_entrance() -> None:
    with pytest.raises(InvalidOption, match="max_length=N"):
        policies([QueueTuning(queue=WorkQueue("q"), longest=1, max_length=5)], (4, 0), vhost="/")


@pytest.mark.parametrize("text", ["", "4", "four", "4.3-rc", "4.3.0.1.2"])
def test_an_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="version"):
        parse_version(text)


NAMES = (
    "amq.default",
    "amq.direct",
    "taskmq",
    "taskmq.jobs",
    "taskmq.reports",
    "taskmq.dlx",
    "taskmq.unroutable",
    "taskmq.dead.archive",
    "taskmq.events",
    "taskmq.delay.v2.enter",
    "taskmq.delay.v2.deliver",
    "taskmq.delay.v2.l03",
    "images",
    "images.p.high",
    "images.jobs",
    "images.dlq",
    "taskmq.late.images",
    "taskmq.parking",
    "taskmq.reports.shop.0",
    "taskmq.listener.web-1.7.a",
    "taskmq.on.sales",
    "taskmq.node.gpu-1",
    "taskmq.node.gpu-1.jobs",
    "taskmq.node.gpu-1.dlq",
    "imagesX",
    "other",
)
JOBS = {"images", "images.p.high"}
LISTENER = {"taskmq.listener.web-1.7.a"}
REPORTS = {"taskmq.reports.shop.0"}
TOPIC = {"taskmq.on.sales"}
NODE = {"taskmq.node.gpu-1", "taskmq.node.gpu-1.jobs", "taskmq.node.gpu-1.dlq"}
RIGHTS: dict[Role, tuple[set[str], set[str], set[str]]] = {
    "producer": (set(), {"taskmq", "taskmq.delay.v2.enter", *JOBS}, set()),
    "worker": (
        LISTENER,
        {
            "taskmq",
            "taskmq.delay.v2.enter",
            "taskmq.dlx",
            "taskmq.dead.archive",
            "taskmq.reports",
            "taskmq.events",
            *LISTENER,
        },
        {*JOBS, "images.jobs", "images.dlq", "taskmq.events", *LISTENER},
    ),
    "beat": (TOPIC, {"taskmq", "taskmq.delay.v2.enter", "taskmq.dlx", *JOBS, *TOPIC}, TOPIC),
    "scheduler": (
        REPORTS | LISTENER,
        {"taskmq.jobs", "taskmq.dlx", "taskmq.events", *JOBS, "images.jobs", *REPORTS, *LISTENER},
        {"taskmq.reports", "taskmq.dlx", "taskmq.events", *REPORTS, *LISTENER},
    ),
    "server": (
        LISTENER,
        {"taskmq", "taskmq.delay.v2.enter", "taskmq.delay.v2.l03", "taskmq.events", *LISTENER},
        {*JOBS, "images.jobs", "images.dlq", "taskmq.parking", "taskmq.unroutable", "taskmq.events", *LISTENER},
    ),
}


@pytest.mark.parametrize("role", RIGHTS)
def test_each_role_has_exactly_its_required_permissions(role: Role) -> None:
    instruction = permissions(role, [WorkQueue("images", max_length=5)], vhost="v", user="u x")
    *command, user, configure, write, read = shlex.split(instruction.shell)

    assert (command, user) == (["rabbitmqctl", "set_permissions", "-p", "v", "--"], "u x")
    assert "declare=off" in instruction.note
    granted = tuple({name for name in NAMES if re.search(pattern, name)} for pattern in (configure, write, read))
    assert granted == RIGHTS[role]


@pytest.mark.parametrize("role", RIGHTS)
def test_a_placed_queue_adds_permissions_for_node_queues(role: Role) -> None:
    *_, configure, write, read = shlex.split(
        permissions(role, [WorkQueue("images", placed=True)], vhost="v", user="u").shell
    )

    granted = tuple({name for name in NAMES if re.search(pattern, name)} for pattern in (configure, write, read))
    _, writes, reads = RIGHTS[role]
    expected = {"worker": (writes, reads | NODE), "scheduler": (writes | NODE, reads)}
    assert granted[1:] == expected.get(role, (writes, reads))
    assert not granted[0] & NODE


def test_an_operator_may_access_everything_of_the_app_and_taskmq_and_no_more() -> None:
    *_, configure, write, read = shlex.split(
        permissions("operator", [WorkQueue("images", max_length=5)], vhost="v", user="u").shell
    )

    foreign = {"amq.direct", "imagesX", "other"}
    for pattern in (configure, read):
        assert {name for name in NAMES if not re.search(pattern, name)} == {*foreign, "amq.default"}
    assert {name for name in NAMES if not re.search(write, name)} == foreign
