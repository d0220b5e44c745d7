"""The doctor's findings about queues."""

from typing import Any

import pytest

from taskmq.contracts.topology_plan import Comparison, TopologyEntry
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.inspection import QueueFacts
from taskmq_rabbitmq.admin.queue_diagnosis import (
    comparison_findings,
    is_passage,
    letter_findings,
    member_findings,
    orphan_findings,
    policy_findings,
    stuck_findings,
    timeout_findings,
)
from taskmq_rabbitmq.model.entities import Queue, work_queue
from taskmq_rabbitmq.model.entities import ladder as ladder_entities

_WORK = WorkQueue("images")
_ARGUMENTS = {
    entity.name: dict(entity.arguments)
    for entity in (
        *ladder_entities(),
        *work_queue(WorkQueue("images")),
        *work_queue(WorkQueue("full", max_length=5)),
    )
    if isinstance(entity, Queue)
}


def queue(name: str, policy: dict[str, Any] | None = None, **facts: Any) -> QueueFacts:
    known: dict[str, Any] = {
        "name": name,
        "kind": "quorum",
        "arguments": _ARGUMENTS.get(name, {}),
        "policy": "all" if policy else None,
        "operator_policy": None,
        "effective_policy": policy or {},
        "messages": 0,
        "ready": 0,
        "unsettled": 0,
        "dead_letters": 0,
        "consumers": 0,
        "state": "running",
        "leader": "rabbit@a",
        "members": ("rabbit@a",),
        "online": ("rabbit@a",),
    }
    return QueueFacts(**{**known, **facts})


@pytest.mark.parametrize(
    ("name", "does_wait"),
    [
        ("taskmq.delay.v2.l00", True),
        ("taskmq.late.full", True),
        ("taskmq.parking", False),
        ("images.dlq", False),
        ("images", False),
    ],
)
def test_waiting_queues_are_recognised_by_name(name: str, does_wait: bool) -> None:
    assert is_passage(name) is does_wait


@pytest.mark.parametrize(
    ("name", "policy", "level", "words"),
    [
        ("taskmq.delay.v2.l05", {"message-ttl": 1_000}, "problem", "delays end too early"),
        ("taskmq.delay.v2.l00", {"expires": 60_000}, "problem", "deleted with all that waits"),
        ("taskmq.delay.v2.l00", {"overflow": "drop-head"}, "problem", "jobs are lost"),
        ("taskmq.delay.v2.l00", {"overflow": "reject-publish-dlx"}, "problem", "jobs are lost"),
        ("taskmq.delay.v2.l00", {"max-length": 10}, "warning", "delayed jobs and retries are refused"),
        ("taskmq.delay.v2.l00", {"max-length-bytes": 10}, "warning", "max-length-bytes=10"),
        ("taskmq.late.full", {"expires": 60_000}, "problem", "deleted with all that waits"),
        ("images.dlq", {"message-ttl": 1_000}, "problem", "dead letters vanish"),
        ("taskmq.parking", {"expires": 1_000}, "problem", "deleted with its letters"),
        ("taskmq.unroutable", {"max-length": 5}, "problem", "the oldest letters vanish"),
        ("images.dlq", {"max-length": 5, "overflow": "reject-publish"}, "warning", "jobs cannot die"),
        ("images.dlq", {"delivery-limit": 20}, "warning", "after 20 looks"),
        ("images", {"message-ttl": 1_000}, "warning", "unseen"),
        ("images", {"expires": 1_000}, "problem", "deleted with its jobs"),
        ("images", {"overflow": "drop-head"}, "problem", "on their way to the dead letters"),
        ("images", {"max-length": 5, "overflow": "drop-head"}, "problem", "without a word"),
        ("full", {"overflow": "drop-head"}, "problem", "without a word"),
        ("images.p.low", {"max-length": 5}, "problem", "everybody's delays stop"),
        ("images.p.high", {"delivery-limit": 3}, "warning", "given up after 3"),
    ],
)
def test_a_harmful_policy_is_reported_with_its_name_and_remedy(
    name: str, policy: dict[str, Any], level: str, words: str
) -> None:
    ((found, about, text, remedy),) = policy_findings([queue(name, policy)])

    assert (found, about) == (level, name)
    assert text.startswith("policy all: ")
    assert words in text
    assert remedy


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("taskmq.delay.v2.l00", {"message-ttl": 125}),
        ("taskmq.delay.v2.l00", {"overflow": "reject-publish", "dead-letter-strategy": "at-most-once"}),
        ("taskmq.delay.v2.l00", {"delivery-limit": 3}),
        ("images.dlq", {"delivery-limit": -1}),
        ("images.dlq", {"delivery-limit": 100_000}),
        ("images", {"delivery-limit": 50, "consumer-timeout": 3_600_000}),
        ("full", {"max-length": 3}),
        ("full", {"max-length": 3, "overflow": "reject-publish"}),
        ("somebody.elses", {"message-ttl": 1, "expires": 1, "overflow": "drop-head", "max-length": 1}),
    ],
)
def test_a_policy_that_does_not_harm_a_queue_is_not_a_finding(name: str, policy: dict[str, Any]) -> None:
    assert policy_findings([queue(name, policy)]) == []


def test_one_policy_is_one_finding_for_all_its_queues() -> None:
    names = [f"taskmq.delay.v2.l{number:02}" for number in range(28)]

    ((_, about, _, _),) = policy_findings([queue(name, {"expires": 1}) for name in names])

    assert about == f"{', '.join(names[:3])} and 25 more"


def test_an_operator_policy_is_named_too() -> None:
    ((_, _, text, _),) = policy_findings([queue("images", {"expires": 1}, operator_policy="limits")])

    assert text.startswith("policy all and operator policy limits: ")


def test_a_difference_is_a_problem_and_a_missing_queue_a_warning() -> None:
    entries = (
        TopologyEntry("same", "queue", "images"),
        TopologyEntry("different", "queue", "images.dlq", "x-queue-type is classic", "migrate"),
        TopologyEntry("missing", "queue", "images.p.low"),
        TopologyEntry("missing", "binding", "a -> b"),
        TopologyEntry("extra", "queue", "images.s03"),
        TopologyEntry("extra", "binding", "x -> y", "it hides a queue that is gone", "take it away"),
    )

    assert comparison_findings(Comparison(entries)) == [
        ("problem", "images.dlq", "queue: x-queue-type is classic", "migrate"),
        (
            "warning",
            "topology",
            "missing: queue images.p.low, binding a -> b",
            "start a worker, or `taskmq topology apply`",
        ),
        (
            "warning",
            "topology",
            "left over: images.s03: the app does not use these any more",
            "`taskmq queue list -Q images.s03` shows what is in them; `taskmq topology diff` what to do with each",
        ),
        ("warning", "x -> y", "binding that is not taskmq's: it hides a queue that is gone", "take it away"),
    ]
    assert [level for level, *_ in comparison_findings(Comparison(entries[:1]))] == ["ok"]
    assert comparison_findings(Comparison(entries[:1], blind="no API")) == []


@pytest.mark.parametrize(
    ("kind", "name", "level"),
    [
        ("exchange", "taskmq.delay.v2.deliver", "problem"),
        ("queue", "taskmq.delay.v2.l05", "problem"),
        ("binding", "taskmq.delay.v2.l05 -> taskmq.delay.v2.l07 [>5>7]", "problem"),
        ("queue", "taskmq.parking", "problem"),
        ("binding", "taskmq.delay.v2.deliver -> images [images]", "warning"),
        ("binding", "taskmq.delay.v2.deliver -> taskmq.late.images [images]", "warning"),
        ("queue", "taskmq.late.images", "warning"),
        ("queue", "images", "warning"),
    ],
)
def test_a_missing_shared_queue_is_a_problem(kind: str, name: str, level: str) -> None:
    entries = (TopologyEntry("missing", kind, name), TopologyEntry("same", "exchange", "taskmq.dlx"))
    (finding,) = comparison_findings(Comparison(entries))

    assert comparison_findings(Comparison(entries[:1]))[0].level == "warning"
    assert (finding.level, f"missing: {kind} {name}" in finding.finding) == (level, True)


def test_without_the_http_api_only_a_used_virtual_host_is_a_problem() -> None:
    lacking = TopologyEntry("missing", "queue", "taskmq.parking")
    of_fresh = (lacking, TopologyEntry("unseen", "binding", "taskmq.dlx -> taskmq.parking []"))
    of_used = (*of_fresh, TopologyEntry("unseen", "exchange", "taskmq.dlx", "exists"))

    levels = [
        [level for level, *_ in comparison_findings(Comparison(it, blind="no API"))] for it in (of_fresh, of_used)
    ]

    assert levels == [["warning"], ["problem"]]


@pytest.mark.parametrize(
    ("version", "policy", "longest", "level"),
    [
        ((3, 10, 8), {}, None, "warning"),
        ((3, 10, 8), {}, 1_700.0, None),
        ((3, 10, 8), {}, 1_900.0, "warning"),
        ((3, 10, 8), {"consumer-timeout": 10_000}, 60.0, None),
        ((4, 0, 5), {"consumer-timeout": 10_000}, 60.0, "problem"),
        ((4, 0, 5), {"consumer-timeout": 7_200_000}, 3_600.0, None),
        ((4, 0, 5), {"consumer-timeout": 7_200_000}, None, "warning"),
        ((4, 3, 6), {"consumer-timeout": 10_000}, None, None),
        (None, {}, None, "warning"),
    ],
)
def test_tasks_that_may_outlast_the_consumer_timeout_are_reported(
    version: tuple[int, ...] | None, policy: dict[str, Any], longest: float | None, level: str | None
) -> None:
    found = timeout_findings({_WORK: longest}, [queue("images", policy), queue("images.p.low", policy)], version)

    assert [each[0] for each in found] == ([] if level is None else [level])
    assert all(remedy and about == "images" for _, about, _, remedy in found)


def test_queues_with_the_same_finding_are_one_line() -> None:
    loads = {WorkQueue(f"q{number}"): None for number in range(5)}

    ((level, about, _, _),) = timeout_findings(loads, [], (3, 10, 8))

    assert (level, about) == ("warning", "q0, q1, q2 and 2 more")


def test_a_timely_handover_is_a_finding_only_for_ordered_queues() -> None:
    loads = {_WORK: None, WorkQueue("video"): 7_200.0, WorkQueue("ledger", ordered=2): None}

    ((level, about, _, _),) = timeout_findings(loads, [], (3, 10, 8), handed_over=1_350.0)

    assert (level, about) == ("warning", "ledger")


def test_a_limit_below_the_handover_time_is_a_problem() -> None:
    facts = queue("images", {"consumer-timeout": 600_000})

    ((level, about, text, advice),) = timeout_findings({_WORK: None}, [facts], (4, 0, 5), handed_over=1_350.0)

    assert (level, about) == ("problem", "images")
    assert "after 1350 s, which is too late" in text
    assert "consumer_timeout=600" in advice


def test_the_queue_argument_limits_too() -> None:
    facts = queue("images", {"consumer-timeout": 60_000}, arguments={"x-consumer-timeout": 30_000})

    ((level, _, text, _),) = timeout_findings({_WORK: 45.0}, [facts], (3, 13, 7))

    assert (level, "30 s" in text) == ("problem", True)


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"members": ("a", "b", "c"), "online": ("a", "b", "c")}, None),
        ({"members": ("a", "b", "c"), "online": ("a", "b")}, "warning"),
        ({"members": ("a", "b", "c"), "online": ("a",)}, "problem"),
        ({"members": ("a", "b"), "online": ("a",)}, "problem"),
        ({"members": ("a", "b", "c"), "online": ("a", "b"), "leader": None}, "problem"),
        ({"members": (), "online": (), "leader": None}, None),
        ({"kind": "classic", "members": (), "online": (), "leader": None}, None),
        ({"kind": "classic", "members": (), "online": (), "leader": None, "state": "down"}, "problem"),
    ],
)
def test_queues_with_missing_members_are_reported(facts: dict[str, Any], level: str | None) -> None:
    found = member_findings([queue("images", **facts)])

    assert [each[0] for each in found] == ([] if level is None else [level])


@pytest.mark.parametrize(("count", "level"), [(0, None), (31, None), (32, "warning"), (40, "warning")])
def test_one_poll_only_suggests_that_a_queue_is_stuck(count: int, level: str | None) -> None:
    found = stuck_findings([queue("taskmq.delay.v2.l03", dead_letters=count)], None, seconds=0)

    assert [each[0] for each in found] == ([] if level is None else [level])
    assert all("--watch" in remedy for *_, remedy in found)


@pytest.mark.parametrize(
    ("before", "after", "level"), [(5, 5, "problem"), (5, 9, "problem"), (5, 2, "ok"), (0, 7, "ok")]
)
def test_two_polls_show_what_is_stuck(before: int, after: int, level: str) -> None:
    first = [queue("taskmq.delay.v2.l03", dead_letters=before)]
    second = [queue("taskmq.delay.v2.l03", dead_letters=after)]

    ((found, about, _, _),) = stuck_findings(first, second, seconds=30)

    assert found == level
    assert about == ("taskmq.delay.v2.l03" if level == "problem" else "dead-lettering")


def test_dead_letters_of_other_apps_are_reported_with_a_command_to_inspect_them() -> None:
    queues = [queue("images.dlq", ready=3), queue("other.dlq", ready=2), queue("idle.dlq"), queue("other", ready=9)]

    assert letter_findings(queues, [_WORK]) == [("warning", "other", "2 dead letters", "taskmq dlq groups other")]


def test_messages_in_unknown_queues_are_reported() -> None:
    ours = {"x-dead-letter-exchange": "taskmq.dlx"}
    queues = [
        queue("images", ready=5),
        queue("old", ready=2, arguments=ours),
        queue("old.p.low", ready=1, arguments=ours),
        queue("served", ready=7, consumers=1, arguments=ours),
        queue("empty", arguments=ours),
        queue("foreign", ready=4),
        queue("taskmq.late.old", ready=1, arguments=ours),
    ]

    ((level, about, text, _),) = orphan_findings(queues, [_WORK])

    assert (level, about) == ("warning", "old, old.p.low")
    assert "3 messages" in text
    assert orphan_findings(queues[:1], [_WORK]) == []
