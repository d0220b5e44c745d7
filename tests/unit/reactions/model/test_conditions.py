"""Valid and invalid conditions of reactions."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskmq.reactions
from taskmq.errors import InvalidOption
from taskmq.model.runs.records import RunState
from taskmq.reactions import all_of, amqp, any_of, at_least, file, job, message, run
from taskmq.reactions.model.expressions import Expression, conditions_of, is_met, rule_of
from taskmq.schedules.triggers import every, once

CSV = file("/in/*.csv")
LOADED = job("shop.load")
ORDER = message("orders.#")


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (LOADED, "a job of shop.load has succeeded"),
        (job("a", "b", state=["failed", "cancelled"]), "a job of a or b has ended failed or cancelled"),
        (job("a", state="failed"), "a job of a has failed"),
        (run("nightly"), "a run of nightly has succeeded"),
        (run("nightly*", ["failed", "cancelled"]), "a run of nightly* has ended failed or cancelled"),
        (CSV, "a file /in/*.csv has arrived, unchanged for 5 s"),
        (file("/in/*", done=".done"), "a file /in/* has arrived, with its .done file"),
        (
            file("/in/*", done=".ok", stable="1m"),
            "a file /in/* has arrived, unchanged for 60 s, with its .ok file",
        ),
        (ORDER, "a message orders.# has arrived over amq.topic"),
        (
            all_of(any_of(LOADED, ORDER), every("1h")),
            (
                "(a job of shop.load has succeeded or a message orders.# has arrived over amq.topic) "
                "and it is due every hour"
            ),
        ),
        (
            at_least(2, LOADED, ORDER, any_of(LOADED, CSV)),
            (
                "at least 2 of: a job of shop.load has succeeded; a message orders.# has arrived over amq.topic; "
                "(a job of shop.load has succeeded or a file /in/*.csv has arrived, unchanged for 5 s)"
            ),
        ),
    ],
)
def test_a_condition_describes_what_it_waits_for(condition: Expression, words: str) -> None:
    assert condition.describe() == words


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (job, "give tasks"),
        (lambda: job(3), "give tasks"),
        (lambda: job("a", state="retrying"), "a job ends as succeeded, failed, cancelled"),
        (lambda: job("a", state="asleep"), "a job ends as succeeded, failed, cancelled"),
        (lambda: job("a", state=()), "a job ends as"),
        (lambda: run(""), "give the name of a workflow"),
        (lambda: run("a\n"), "give the name of a workflow"),
        (lambda: run("a", state="running"), "a run ends as succeeded, failed or cancelled"),
        (lambda: run("a", state=()), "a run ends as succeeded, failed or cancelled"),
        (lambda: file(""), "a path"),
        (lambda: file("/in/*", done="../x"), "give a suffix of a name"),
        (lambda: file("/in/a.done", done=".done"), "itself ends with done='.done'"),
        (lambda: file("/in/*", stable=0), "give a longer time or done="),
        (lambda: file("/in/*", stable="soon"), "is not a duration"),
        (message, "give a routing key"),
        (lambda: message("a", exchange=""), "give a routing key"),
        (lambda: message("a" * 256), "1 to 255 bytes"),
        (lambda: message("orders.b*"), "whole words"),
        (lambda: all_of(LOADED), "at least two"),
        (lambda: any_of(LOADED, "file"), "is not a condition"),  # type: ignore[arg-type]
        (lambda: at_least(0, LOADED, CSV), "a count of 1 to 2"),
        (lambda: at_least(3, LOADED, CSV), "a count of 1 to 2"),
    ],
)
def test_an_invalid_condition_is_refused(make: object, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        make()  # type: ignore[operator]


def test_a_task_may_be_used_instead_of_its_name() -> None:
    class Named:
        name = "shop.load"

    assert job(Named(), "shop.load") == LOADED


@pytest.mark.parametrize(
    ("workflow", "state", "fits"),
    [
        ("nightly", RunState.FAILED, True),
        ("nightly.report", RunState.FAILED, True),
        ("nightly", RunState.SUCCEEDED, False),
        ("a nightly", RunState.FAILED, False),
    ],
)
def test_a_condition_of_runs_matches_names_and_ends(workflow: str, state: RunState, fits: bool) -> None:
    assert run("nightly*", "failed").is_met_by(workflow, state) is fits


def test_conditions_are_numbered_from_left_to_right() -> None:
    when = once(datetime(2027, 1, 1, tzinfo=UTC))
    expression = all_of(any_of(LOADED, CSV), when, ORDER)

    assert [type(each).__name__ for each in conditions_of(expression)] == [
        "JobEnds",
        "FileArrives",
        "TimeComes",
        "MessageComes",
    ]
    assert is_met(expression, {1, 2, 3})
    assert is_met(expression, {0, 1, 2, 3})
    assert not is_met(expression, {0, 1, 3})
    assert not is_met(expression, {2, 3})


def test_some_of_the_conditions_are_enough_whichever_they_are() -> None:
    expression = all_of(at_least(2, LOADED, CSV, ORDER), job("other"))

    enough = [{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}]
    assert all(is_met(expression, {*met, 3}) for met in enough)
    assert not any(is_met(expression, met) for met in ({0, 3}, {1, 3}, {3}, {0, 1, 2}))


def test_equal_expressions_have_equal_rules_and_others_do_not() -> None:
    assert rule_of(all_of(LOADED, CSV), 0) == rule_of(all_of(job("shop.load"), file("/in/*.csv")), 0)
    assert rule_of(all_of(LOADED, CSV), 0) != rule_of(any_of(LOADED, CSV), 0)
    assert rule_of(all_of(LOADED, CSV), 0) != rule_of(all_of(LOADED, CSV), 1)
    assert rule_of(all_of(LOADED, CSV), 0) != rule_of(all_of(LOADED, CSV), 0, 1)
    assert rule_of(at_least(1, LOADED, CSV), 0) != rule_of(at_least(2, LOADED, CSV), 0)


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.new", True),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.new", False),
        ("orders.*", "orders", False),
        ("#.new", "orders.eu.new", True),
        ("#.new", "new.old", False),
        ("a.#.b.#.c", "a.x.b.c", True),
        ("#", "", True),
        ("*", "", True),
        ("a", "b", False),
    ],
)
def test_a_pattern_matches_like_a_topic_exchange(pattern: str, key: str, fits: bool) -> None:
    assert message("never", pattern).matches(key) is fits


def _fits(pattern: list[str], words: list[str]) -> bool:
    """Match by a different algorithm."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _fits(pattern[1:], words[1:])


@given(
    pattern=st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=6),
    words=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6),
)
def test_patterns_agree_with_an_exhaustive_search(pattern: list[str], words: list[str]) -> None:
    assert message(".".join(pattern)).matches(".".join(words)) is _fits(pattern, words)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = taskmq.reactions.nothing
    assert taskmq.reactions.Arrivals.__name__ == "Arrivals"


def test_a_queue_of_another_system_is_described_without_user_and_password() -> None:
    taken = amqp("amqp://user:s3cret@crm:5673/sales?heartbeat=3", queue="orders")
    bound = amqp(exchange="sales", keys=["new.*", "old.*"])
    named = amqp(queue="ours", exchange="sales")

    assert taken.describe() == "a message has arrived in the queue orders at amqp://crm:5673/sales"
    assert bound.describe() == "a message has arrived over the exchange sales with the key new.* or old.*"
    assert named.describe() == "a message has arrived in the queue ours over the exchange sales with the key #"
    assert "s3cret" not in repr(taken)
    assert (taken.keys, named.keys, taken.prefetch) == ((), ("#",), 100)


def test_a_different_password_is_the_same_rule() -> None:
    one = amqp("amqp://user:old@crm/", queue="orders")
    other = amqp("amqp://user:new@crm/", queue="orders")

    assert rule_of(one, 0) == rule_of(other, 0) != rule_of(amqp("amqp://crm2/", queue="orders"), 0)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        (None, {}),
        (None, {"exchange": "sales", "keys": ()}),
        (None, {"queue": "a\nb"}),
        (None, {"queue": "q" * 256}),
        (None, {"queue": "orders", "prefetch": 0}),
        (None, {"queue": "orders", "prefetch": 65_536}),
        ("s3cret://crm/", {"queue": "orders"}),
    ],
)
def test_an_invalid_queue_is_refused(url: str | None, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as refused:
        amqp(url, **options)

    assert "s3cret" not in str(refused.value)
