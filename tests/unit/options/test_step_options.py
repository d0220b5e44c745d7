"""Options of calls, encoded for a stored workflow and read again."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from taskmq.errors import InvalidOption
from taskmq.options.plans import CallPlan, plan_call
from taskmq.options.step_options import decode_options, encode_options

_NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def _plan(base: CallPlan, **options: Any) -> CallPlan:
    return plan_call(base, options, task="shop.sell")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "slow", "priority": 7, "tenant": "acme", "meta": {"a": "b"}},
        {"order_key": "k", "idempotency_key": "once"},
        {"delay": "90s", "expires": "1.5h"},
        {"eta": _NOON, "expires": _NOON},
        {"timeout": "10s", "max_attempts": 3},
        {"retry": {"backoff": "constant", "base": "1s", "cap": "1m", "jitter": False}},
        {"guarantee": "at_most_once"},
    ],
)
def test_options_of_a_call_are_equal_after_encoding_and_decoding(options: dict[str, Any]) -> None:
    own = CallPlan(queue="default", priority=None)
    plan = _plan(own, **options)

    kept = msgspec.json.decode(msgspec.json.encode(encode_options(plan, own)))

    assert _plan(own, **decode_options(kept)) == plan
    assert kept.keys() == options.keys()


def test_options_of_the_task_are_included() -> None:
    own = _plan(CallPlan(), queue="slow", priority=3, delay=5, timeout=3, meta={"a": "b"})
    kept = encode_options(own, own)

    assert kept == {"queue": "slow", "priority": 3, "delay": 5.0, "timeout": 3.0, "meta": {"a": "b"}}
    assert _plan(CallPlan(), **decode_options(kept)) == own


def test_a_step_without_the_priority_of_its_task_says_so() -> None:
    own = _plan(CallPlan(), priority=3)

    assert encode_options(_plan(own, priority=None), own) == {"priority": None}


def test_a_duration_stays_a_duration() -> None:
    assert decode_options({"expires": "1h", "delay": "2m"}) == {"expires": "1h", "delay": "2m"}


def test_an_instant_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidOption, match="eta='soon' is not an instant"):
        decode_options({"eta": "soon"})
    with pytest.raises(InvalidOption, match="expires='tomorrow at ten' is not an instant"):
        decode_options({"expires": "tomorrow at ten"})
