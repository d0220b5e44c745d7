"""Warnings and consumer arguments for tasks that take long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.broker import Subscription
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS, consume_arguments, remedy, settle_within, warning

TIMER_LIMIT_MS = 2**32


@given(st.floats(0, 1e9))
def test_a_consumer_that_states_its_duration_gets_more_than_that(longest: float) -> None:
    milliseconds = consume_arguments(longest, (4, 3, 6))["x-consumer-timeout"]

    assert milliseconds >= min(longest, 30 * 24 * 3600.0) * 1000
    assert DEFAULT_SECONDS * 1000 <= milliseconds < TIMER_LIMIT_MS


def test_a_consumer_without_a_known_duration_requests_a_very_long_timeout() -> None:
    assert consume_arguments(None, (4, 3, 0)) == {"x-consumer-timeout": 30 * 24 * 3600 * 1000}


@pytest.mark.parametrize("version", [(3, 10, 8), (3, 13), (4, 0, 5), (4, 2, 9), None])
def test_consumers_cannot_set_the_timeout_before_4_3(version: tuple[int, ...] | None) -> None:
    assert consume_arguments(60.0, version) == {}


def test_queues_with_tasks_at_risk_are_named_once() -> None:
    said = warning(
        [
            Subscription("reports.p.high", 1),
            Subscription("reports", 1),
            Subscription("mail", 1, longest=60),
            Subscription("video", 1, longest=7200),
        ],
        (3, 10, 8),
    )

    assert said is not None
    assert said.count("'reports'") == 1
    assert "'video'" in said
    assert "mail" not in said


def test_a_state_is_not_advised_for_ordered_queues() -> None:
    said = warning([Subscription("ledger.s00", 1), Subscription("ledger.s01", 1)], (3, 10, 8))

    assert said is not None
    assert said.startswith("tasks of 'ledger' may run")
    assert "state" not in said
    assert "or the app a state" in (warning([Subscription("ledger.s00", 1), Subscription("mail", 1)], (3, 10)) or "")


def test_no_warning_is_given_if_nothing_can_happen() -> None:
    assert warning([Subscription("mail", 1, longest=60)], (3, 10, 8)) is None
    assert warning([Subscription("reports", 1)], (4, 3, 6)) is None
    assert warning([Subscription("reports", 1)], None) is None


def test_no_warning_is_given_for_timely_acks_or_nodes_without_a_limit() -> None:
    assert warning([Subscription("reports", 1, is_punctual=True)], (3, 10, 8)) is None
    assert warning([Subscription("reports", 1)], (3, 10, 8), of_nodes=None) is None
    assert warning([Subscription("video", 1, longest=7200)], (3, 10, 8), of_nodes=9000.0) is None
    assert "more than 150 minutes" in (warning([Subscription("video", 1)], (3, 10, 8), of_nodes=9000.0) or "")


def test_a_delivery_times_out_after_the_limit_of_the_node_or_of_the_consumer() -> None:
    assert settle_within(60, (3, 10, 8), of_nodes=1800.0) == 1800.0
    assert settle_within(None, (4, 2, 9), of_nodes=None) is None
    assert settle_within(60, None, of_nodes=1800.0) == 1800.0
    assert settle_within(60, (4, 3, 6), of_nodes=None) == 120 + DEFAULT_SECONDS
    assert settle_within(None, (4, 3, 6), of_nodes=1800.0) == 30 * 24 * 3600.0


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ((3, 10, 8), "rabbitmq.conf"),
        ((3, 11, 28), "rabbitmq.conf"),
        ((3, 12, 0), "policy"),
        ((4, 2, 9), "policy"),
        ((4, 3, 6), "longer `timeout`"),
    ],
)
def test_the_remedy_matches_the_version(version: tuple[int, ...], words: str) -> None:
    assert words in remedy(version)
