"""Durations, amounts of memory and numbers of processes."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.units import (
    LAST_INSTANT,
    Duration,
    count_text,
    duration_text,
    instant_ms,
    instant_text,
    milliseconds_in,
    parse_duration,
    parse_processes,
    parse_seconds,
    parse_size,
    seconds_in,
    size_text,
    to_datetime,
    to_ms,
)

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_500))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(days=7)),
        ("0s", timedelta(0)),
        ("1.5h", timedelta(minutes=90)),
        ("0.5ms", timedelta(microseconds=500)),
        ("1m1ms", timedelta(minutes=1, milliseconds=1)),
        (" 1h 30m ", timedelta(minutes=90)),
        ("1H30M", timedelta(minutes=90)),
        ("30m1h", timedelta(minutes=90)),
        (0, timedelta(0)),
        (30, timedelta(seconds=30)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(days=1), timedelta(days=1)),
        (timedelta(0), timedelta(0)),
    ],
)
def test_a_duration_is_parsed_as_people_write_it(written: Duration, meant: timedelta) -> None:
    assert parse_duration(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", "s", "abc", "1x", "1h30", "30 s x", "-5s", "+5s", "1,5h", ".5s", "1.s", "1e3s", "1h-30m"),
        *("1 minute", "PT30S", "00:30", "1h\t30m", "inf", "nan", "\ud800", "9" * 400 + "d", "9999999999w"),
        *(-1, -0.001, float("nan"), float("inf"), float("-inf"), 10**400, 10**15),
        *(timedelta(microseconds=-1), timedelta.min, True, False),
        *(None, b"30s", [30], object(), 1j, Decimal(5), Fraction(1, 2)),
    ],
    ids=lambda written: repr(written)[:20],
)
def test_an_invalid_duration_is_refused_with_the_name_of_the_option(written: object) -> None:
    with pytest.raises(InvalidOption, match=r"^timeout=.* is not a duration: use "):
        parse_duration(cast("Duration", written), what="timeout")


@given(st.integers(0, 10**6), st.sampled_from([*_UNITS]))
def test_a_number_with_its_unit_is_that_many_of_them(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * timedelta(milliseconds=_UNITS[unit])


@given(_durations)
def test_a_timedelta_is_unchanged_and_its_text_means_the_same(value: timedelta) -> None:
    whole_ms = left = value // timedelta(milliseconds=1)
    text = ""
    for unit, size in reversed(_UNITS.items()):
        number, left = divmod(left, size)
        text += f"{number}{unit}"

    assert parse_duration(value) == value
    assert parse_duration(text) == timedelta(milliseconds=whole_ms)


@given(_durations)
def test_a_number_of_seconds_means_the_same_as_the_timedelta(value: timedelta) -> None:
    assert abs(parse_duration(value.total_seconds()) - value) <= timedelta(microseconds=1)


@given(st.text(max_size=20) | st.from_regex(r"[-+ 0-9.eEinfa]*(ms|[smhdwx ])*", fullmatch=True))
def test_any_text_is_a_duration_or_a_typed_error(text: str) -> None:
    try:
        value = parse_duration(text)
    except InvalidOption:
        return
    assert value >= timedelta(0)


@given(st.floats() | st.integers() | st.timedeltas())
def test_any_number_is_a_duration_or_a_typed_error(number: Duration) -> None:
    try:
        value = parse_duration(number)
    except InvalidOption:
        return
    assert value >= timedelta(0)


@given(_durations | st.timedeltas(min_value=timedelta(0)))
def test_to_ms_rounds_up_by_less_than_a_millisecond(value: timedelta) -> None:
    milliseconds = to_ms(value)

    assert milliseconds * 1_000 >= value // timedelta(microseconds=1) > (milliseconds - 1) * 1_000


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (timedelta(0), 0),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1_000), 1),
        (timedelta(microseconds=1_001), 2),
        (timedelta(days=1), 86_400_000),
        (timedelta.max, 86_399_999_999_999_999 + 1),
    ],
)
def test_to_ms_at_its_edges(value: timedelta, milliseconds: int) -> None:
    assert to_ms(value) == milliseconds


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (1, 1),
        ("1", 1),
        ("17B", 17),
        ("1k", 1024),
        ("512M", 512 * 1024**2),
        ("1.5G", 3 * 512 * 1024**2),
        ("2 GiB", 2 * 1024**3),
        (" 3 tb ", 3 * 1024**4),
    ],
)
def test_a_size_is_parsed_as_people_write_it(written: object, meant: int) -> None:
    assert parse_size(written, what="memory") == meant


@pytest.mark.parametrize(
    "written", [0, -1, True, 1.5, None, "", "0", "0M", "0.0001", "M", "1X", "-1M", "1M1K", "1e3"]
)
def test_an_invalid_size_is_refused_by_name(written: object) -> None:
    with pytest.raises(InvalidOption, match="--max-memory="):
        parse_size(written, what="--max-memory")


@given(st.integers(1, 1024**5))
def test_a_formatted_size_is_nearly_the_parsed_one(size: int) -> None:
    assert parse_size(size_text(size), what="size") == pytest.approx(size, rel=1e-3, abs=1)


def test_sizes_use_the_largest_unit_that_fits() -> None:
    sizes = (1, 1023, 1024, 3 * 512 * 1024**2, 1024**4)
    assert [size_text(size) for size in sizes] == ["1B", "1023B", "1K", "1.5G", "1T"]


def test_a_duration_has_its_two_largest_units() -> None:
    seconds = (0.2, 59, 61, 7_500, 90_061, 3_600)

    assert [duration_text(each) for each in seconds] == ["0s", "59s", "1m 1s", "2h 5m", "1d 1h", "1h"]


def test_processes_are_a_number_or_a_range() -> None:
    assert parse_processes("4") == (4, None)
    assert parse_processes(" 1-8 ") == (1, 8)
    assert parse_processes("2-2") == (2, 2)


@pytest.mark.parametrize("text", ["", "0", "-1", "1-", "-8", "8-1", "0-4", "many", "1-8-9"])
def test_an_invalid_number_of_processes_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="such as '1-8'"):
        parse_processes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("2.5", 2.5),
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("250ms", 0.25),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_a_text_setting_is_a_number_of_seconds_or_a_duration(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == seconds


def test_an_invalid_duration_in_seconds_names_its_option() -> None:
    assert [parse_seconds(value, what="x") for value in ("1m", 2, timedelta(seconds=3))] == [60, 2, 3]
    with pytest.raises(InvalidOption, match="timeout='soon' is not a duration"):
        parse_seconds("soon", what="timeout")


@given(st.integers())
def test_every_number_of_milliseconds_has_a_datetime(milliseconds: int) -> None:
    moment = to_datetime(milliseconds)

    if 0 <= milliseconds <= LAST_INSTANT:
        assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=milliseconds)
    assert (to_datetime(LAST_INSTANT).year, to_datetime(2**80).year, to_datetime(-(2**80)).year) == (9999, 9999, 1)


@given(st.integers(0, LAST_INSTANT))
def test_a_formatted_instant_can_be_parsed(milliseconds: int) -> None:
    assert milliseconds_in(instant_text(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "then", "2026-11-29", "2026-13-01T00:00:00.000Z", "2026-11-29T00:00:00+01:00"])
def test_an_invalid_instant_is_not_parsed(text: str) -> None:
    assert milliseconds_in(text) is None


def test_an_instant_is_written_to_the_millisecond_in_utc() -> None:
    assert instant_text(1_796_000_000_125) == "2026-11-30T00:53:20.125Z"


@pytest.mark.parametrize(
    ("moment", "instant"),
    [
        (datetime(1970, 1, 1, 1, tzinfo=UTC), 3_600_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1969, 12, 31, tzinfo=UTC), 0),
        (datetime.max.replace(tzinfo=UTC), LAST_INSTANT),
    ],
)
def test_a_datetime_becomes_an_instant_that_an_envelope_can_hold(moment: datetime, instant: int) -> None:
    assert instant_ms(moment, what="eta") == instant


def test_a_datetime_without_a_time_zone_is_no_instant() -> None:
    with pytest.raises(InvalidOption, match="give a datetime with a time zone"):
        instant_ms(datetime(2027, 1, 1), what="eta")  # noqa: DTZ001 - the mistake


def test_a_count_is_followed_by_the_singular_or_the_plural() -> None:
    assert [count_text(each, "job") for each in (0, 1, 1.0, 0.5, 12_345)] == [
        "0 jobs", "1 job", "1 job", "0.5 jobs", "12345 jobs",
    ]  # fmt: skip
