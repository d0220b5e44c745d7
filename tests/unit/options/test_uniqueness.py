"""Uniqueness and idempotency keys in the options of tasks."""

from typing import Any

import pytest

from taskmq import InvalidOption, task
from taskmq.options.uniqueness import Idempotency, read_uniqueness


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unique_for": "waiting"}, "unique_for: no effect without unique="),
        ({"unique": "shop", "unique_for": "ever"}, "unique_for='ever'"),
        ({"unique": "shop", "unique_policy": "drop"}, "unique_policy='drop'"),
        ({"unique": "shop", "unique_policy": "debounce"}, "needs a delay="),
        ({"unique": "shop", "unique_policy": "throttle"}, "needs a unique_ttl="),
        ({"unique": "shop", "unique_ttl": 0}, "unique_ttl=0"),
        ({"unique": 5}, "unique=5: must be the name of a parameter"),
        ({"unique": "nobody"}, "unique='nobody' is none of its parameters"),
        ({"unique": "x:{nobody}"}, "'nobody' is none of its parameters"),
        ({"idempotency_key": "same"}, "idempotency_key='same' is none of its parameters"),
        ({"idempotency_key": "{"}, "idempotency_key="),
        ({"idempotency_key": "}}"}, "the same for all calls"),
        ({"idempotency_key": ""}, "idempotency_key=''"),
        ({"idempotency_key": "shop", "idempotency_ttl": "2y"}, "idempotency_ttl"),
        ({"idempotency_scope": ""}, "idempotency_scope"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_options_are_refused_at_definition(options: dict[str, Any], words: str) -> None:
    async def sync(shop: str) -> None: ...

    with pytest.raises(InvalidOption, match=words.replace("(", r"\(")):
        task(name="sync", **options)(sync)


@pytest.mark.parametrize(
    ("options", "replaces"),
    [
        ({}, False),
        ({"unique_policy": "replace"}, True),
        ({"unique_policy": "debounce", "delay": "5s"}, True),
        ({"unique_policy": "throttle", "unique_ttl": "1m"}, False),
    ],
)
def test_the_later_call_counts_if_the_policy_says_so(options: dict[str, Any], replaces: bool) -> None:
    uniqueness = read_uniqueness({"unique": True, **options})

    assert uniqueness is not None
    assert uniqueness.replaces is replaces


def test_keys_of_beat_are_remembered_for_a_quarter_of_an_hour_at_most() -> None:
    hour, minute = Idempotency(ttl=3600), Idempotency(ttl=60)

    assert [each.ttl_of(is_occurrence=True) for each in (hour, minute)] == [900, 60]
    assert [each.ttl_of(is_occurrence=False) for each in (hour, minute)] == [3600, 60]


def test_tasks_of_one_scope_share_the_names_of_their_claims() -> None:
    own, shared = Idempotency(), Idempotency(scope="orders")

    assert own.name_of("bill", "17", tenant="acme") == "@acme:once:bill:17"
    assert shared.name_of("bill", "17", tenant=None) == shared.name_of("ship", "17", tenant=None) == "once:orders:17"
