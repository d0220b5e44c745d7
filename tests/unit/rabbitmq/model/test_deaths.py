"""Letters dead lettered by RabbitMQ, translated to the headers of a worker's letters."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.deaths import death_of, keeps_letters

_BITS = "0." * 27 + "1."


def entry(queue: str, reason: str, second: int) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "time": datetime.fromtimestamp(second, UTC), "count": 1}


@pytest.mark.parametrize(
    ("queue", "is_kept"),
    [
        ("images.dlq", True),
        ("taskmq.parking", True),
        ("taskmq.unroutable", True),
        ("images", False),
        ("images.p.high", False),
        ("taskmq.delay.v2.l00", False),
    ],
)
def test_letters_are_distinguished_from_jobs_by_their_queue(queue: str, is_kept: bool) -> None:
    assert keeps_letters(queue) is is_kept


def test_a_letter_contains_reason_class_and_time() -> None:
    headers: dict[str | bytes, object] = {"x-death": [entry("images.p.high", "delivery_limit", 100)]}

    assert death_of(headers, "images") == {
        "x-taskmq-reason": "delivery_limit",
        "x-taskmq-origin": "images.p.high",
        "x-taskmq-died": 100_000,
    }


def test_the_levels_of_the_ladder_are_not_an_origin() -> None:
    # As 3.10.8 writes it: only the first entry is at its position.
    deaths = [
        entry("images.p.low", "rejected", 13),
        entry("taskmq.delay.v2.l01", "expired", 12),
        entry("taskmq.delay.v2.l02", "expired", 12),
    ]

    assert death_of({"x-death": deaths}, "images")["x-taskmq-origin"] == "images.p.low"


@pytest.mark.parametrize("order", [1, -1])
def test_the_last_of_several_deaths_counts(order: int) -> None:
    deaths = [entry("images", "expired", 20), entry("images.p.high", "rejected", 10)][::order]

    assert death_of({"x-death": deaths}, None)["x-taskmq-reason"] == "expired"


def test_a_message_that_left_the_ladder_names_its_destination() -> None:
    deaths = [entry("taskmq.delay.v2.l00", "expired", 7), entry("taskmq.delay.v2.l03", "expired", 6)]

    assert death_of({"x-death": deaths}, f"{_BITS}shop.images.p.low") == {
        "x-taskmq-reason": "unroutable",
        "x-taskmq-origin": "shop.images.p.low",
        "x-taskmq-died": 7_000,
    }


@pytest.mark.parametrize("which", ["last", "first"])
def test_without_readable_tables_the_single_headers_are_used(which: str) -> None:
    headers: dict[str | bytes, object] = {
        "x-death": "?",
        f"x-{which}-death-queue": "images",
        f"x-{which}-death-reason": "maxlen",
    }

    assert death_of(headers, "images") == {"x-taskmq-reason": "maxlen", "x-taskmq-origin": "images"}


def test_a_ladder_level_in_the_single_headers_is_not_an_origin() -> None:
    headers: dict[str | bytes, object] = {
        "x-first-death-queue": "taskmq.delay.v2.l02",
        "x-first-death-reason": "expired",
    }

    assert death_of(headers, "images") == {}


junk = st.recursive(
    st.one_of(
        st.none(), st.integers(), st.text(max_size=10), st.binary(max_size=5), st.datetimes(timezones=st.just(UTC))
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["queue", "reason", "time", "count", "x"]), inner, max_size=5),
    ),
    max_leaves=20,
)
names = st.sampled_from(
    ["x-death", "x-first-death-queue", "x-first-death-reason", "x-last-death-queue", "x-last-death-reason"]
)


@given(st.dictionaries(names, junk), st.one_of(st.none(), st.text(max_size=80)))
def test_foreign_headers_are_read_as_text_and_numbers_or_ignored(
    headers: dict[str | bytes, object], key: str | None
) -> None:
    found = death_of(headers, key)

    assert set(found) <= {"x-taskmq-reason", "x-taskmq-origin", "x-taskmq-died"}
    assert isinstance(found.get("x-taskmq-reason", ""), str)
    assert found.get("x-taskmq-origin", "?")
    assert isinstance(found.get("x-taskmq-died", 0), int)


@pytest.mark.parametrize("key", ["", "images", "0.1.images", _BITS, f"x.{_BITS}images", _BITS[:-2] + "2.images"])
def test_other_routing_keys_have_no_destination(key: str) -> None:
    assert delay.destination({}, key) is None


def test_a_letter_whose_queue_was_deleted_during_its_delay_names_the_queue() -> None:
    deaths = [entry("taskmq.delay.v2.l05", "expired", 9), entry("taskmq.delay.v2.l00", "expired", 5)]

    assert death_of({"x-death": deaths, "CC": delay.ways(4_125)}, "shop.images") == {
        "x-taskmq-reason": "unroutable",
        "x-taskmq-origin": "shop.images",
        "x-taskmq-died": 9_000,
    }


def test_a_letter_that_died_after_its_delay_died_in_its_queue() -> None:
    deaths = [entry("shop.images", "delivery_limit", 20), entry("taskmq.delay.v2.l05", "expired", 9)]

    assert death_of({"x-death": deaths, "CC": delay.ways(4_000)}, "shop.images") == {
        "x-taskmq-reason": "delivery_limit",
        "x-taskmq-origin": "shop.images",
        "x-taskmq-died": 20_000,
    }


def test_a_queue_known_only_from_passages_is_not_the_origin_of_a_letter() -> None:
    passage = delay.level_name(0)
    headers: dict[str | bytes, object] = {
        "x-death": [entry(passage, "expired", 100), "nonsense", {"queue": 7, "reason": "expired"}],
        "x-last-death-queue": passage,
        "x-last-death-reason": "expired",
    }

    assert death_of(headers, None) == {}
