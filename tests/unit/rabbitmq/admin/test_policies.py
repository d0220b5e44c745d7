"""Policies and permissions, as an operator is told them."""

import json
import re
import shlex
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.topology_plan import QueueTuning, Role
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.policies import exactly, parse_version, permissions, policies

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
MINUTE = 60.0
ROLES: tuple[Role, ...] = ("producer", "worker", "operator")


def keys(tuning: QueueTuning, version: str) -> dict[str, object]:
    """What the policy of a queue says."""
    found: dict[str, object] = {}
    for instruction in policies([tuning], parse_version(version), vhost="/"):
        if instruction.about.startswith("taskmq."):
            found = json.loads(shlex.split(instruction.shell)[-1])
    return found


@given(wanted=st.lists(names, min_size=1, unique=True), other=names)
def test_a_pattern_fits_the_names_it_was_made_of_and_no_other(wanted: list[str], other: str) -> None:
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
def test_the_consumer_timeout_follows_from_the_tasks_time_limits(
    longest: float | None, version: str, expected: dict[str, object]
) -> None:
    assert keys(QueueTuning(queue=WorkQueue("q"), longest=longest), version) == expected


def test_the_consumer_timeout_is_the_nodes_before_3_12_and_the_consumers_after_4_2() -> None:
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


def test_all_that_tunes_a_queue_is_one_policy() -> None:
    tuning = QueueTuning(queue=WorkQueue("q", max_length=100), longest=1, max_length=50, return_delay=1.5)

    assert keys(tuning, "4.3") == {
        "max-length": 50,
        "overflow": "reject-publish",
        "delayed-retry-type": "returned",
        "delayed-retry-min": 1500,
        "delayed-retry-max": 1500,
    }


def test_only_4_3_holds_returned_messages_back_and_only_in_quorum_queues() -> None:
    with pytest.raises(UnsupportedFeature, match=r"4\.3"):
        policies([QueueTuning(queue=WorkQueue("q"), longest=1, return_delay=1)], (4, 2), vhost="/")

    assert keys(QueueTuning(queue=WorkQueue("q", "classic"), longest=1, return_delay=1), "4.3") == {}


def test_a_limit_by_policy_needs_a_queue_with_an_entrance() -> None:
    with pytest.raises(InvalidOption, match="max_length=N"):
        policies([QueueTuning(queue=WorkQueue("q"), longest=1, max_length=5)], (4, 0), vhost="/")


@pytest.mark.parametrize("text", ["", "4", "four", "4.3-rc", "4.3.0.1.2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="version"):
        parse_version(text)


def test_each_role_may_do_what_it_has_to_and_no_more() -> None:
    queues = [WorkQueue("images", max_length=5)]
    rights: dict[Role, list[str]] = {}
    for role in ROLES:
        *command, user, configure, write, read = shlex.split(permissions(role, queues, vhost="v", user="u x").shell)
        assert (command, user) == (["rabbitmqctl", "set_permissions", "-p", "v", "--"], "u x")
        rights[role] = [configure, write, read]

    def may(role: Role, what: Literal["configure", "write", "read"], name: str) -> bool:
        return re.search(rights[role][("configure", "write", "read").index(what)], name) is not None

    assert not any(may("worker", "configure", name) for name in ("images", "taskmq.dlx", "taskmq.events"))
    # Whoever writes to the exchange of events commands workers.
    for what in ("configure", "write", "read"):
        assert not may("producer", what, "taskmq.events")
        assert not may("producer", what, "taskmq.listener.web-1.7.a")
        assert may("worker", what, "taskmq.listener.web-1.7.a")
        assert may("operator", what, "taskmq.events")
    assert may("worker", "write", "taskmq.events")
    assert may("worker", "read", "taskmq.events")
    assert not any(may("producer", "configure", name) for name in ("images", "taskmq.dlx"))
    assert not any(may("producer", "read", name) for name in ("images", "images.dlq", "taskmq.parking"))
    assert may("worker", "read", "images.p.high")
    assert may("worker", "read", "images.dlq")
    assert not any(may("worker", "read", name) for name in ("taskmq.parking", "imagesX", "taskmq.delay.v2.l03"))
    for sender in (ROLES[0], ROLES[1]):
        assert all(
            may(sender, "write", name) for name in ("amq.default", "taskmq.delay.v2.l03", "taskmq.late.images")
        )
        assert not any(may(sender, "write", name) for name in ("amq.direct", "other", "taskmq.dlx"))
    assert all(may("operator", "configure", name) for name in ("images", "images.dlq", "taskmq.dlx"))
    assert not any(may("operator", what, "other") for what in ("configure", "write", "read"))
