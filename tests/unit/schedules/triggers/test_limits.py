import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules.triggers import (
    DaysOff,
    Every,
    Limited,
    Once,
    Trigger,
    cron,
    every,
    instants_after,
    jitter_of,
    once,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = datetime(2027, 1, 1, tzinfo=UTC)
_WITHOUT_ZONE = datetime(2027, 1, 1)  # noqa: DTZ001
_HOUR = 3_600_000
_DAY = 24 * _HOUR


def ms(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(milliseconds=1)


def hours(trigger: Trigger, count: int = 10, *, after: datetime = _START - timedelta(days=9)) -> list[float]:
    """Return the due instants in hours since the start."""
    return [(instant - ms(_START)) / _HOUR for instant in islice(instants_after(trigger, ms(after)), count)]


def test_a_rule_without_limits_is_the_rule_itself() -> None:
    assert every("1h") == Every(_HOUR)


def test_no_instant_is_due_before_the_start_and_the_start_itself_may_be() -> None:
    assert hours(every("1h", start=_START), 2) == [0, 1]
    assert hours(every("1h", start=_START + timedelta(milliseconds=1)), 2) == [1, 2]


def test_no_instant_is_due_after_the_end_and_the_end_itself_may_be() -> None:
    end = _START + timedelta(hours=2)

    assert hours(every("1h", start=_START, end=end)) == [0, 1, 2]
    assert hours(every("1h", start=_START, end=end - timedelta(milliseconds=1))) == [0, 1]
    assert every("1h", end=end).next_after(ms(end)) is None


def test_a_count_of_instants_begins_at_the_start_for_every_caller() -> None:
    trigger = every("1h", start=_START, max_runs=3)

    assert hours(trigger) == [0, 1, 2]
    assert hours(trigger, after=_START) == [1, 2]
    assert trigger.next_after(ms(_START) + 2 * _HOUR) is None
    assert hours(every("1h", start=_START, end=_START, max_runs=3)) == [0]


def test_days_off_do_not_count() -> None:
    # The 1st is a Friday.
    assert hours(cron("0 0 * * *", start=_START, max_runs=3, exclude=["sat", "sun"])) == [0, 72, 96]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"start": _WITHOUT_ZONE}, r"^start=datetime.datetime\(2027, 1, 1, 0, 0\): must be a datetime with a zone"),
        ({"end": "2027"}, "^end='2027': must be a datetime with a zone"),
        ({"max_runs": 3}, r"^max_runs=3 needs start=, from which it counts$"),
        ({"start": _START, "max_runs": 0}, r"^max_runs=0: must be from 1 to 10,000; use end= for an end time$"),
        ({"start": _START, "max_runs": 10_001}, r"^max_runs=10001: must be from 1 to 10,000"),
        ({"start": _START, "end": _START - timedelta(days=1)}, "every hour, from .* until .* is never due$"),
        ({"until": _START}, "^until= is not an option of a trigger; options: end, exclude, max_runs, start$"),
    ],
)
def test_invalid_limits_are_refused(limits: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        every("1h", **limits)


def test_a_phase_is_added_to_the_multiples() -> None:
    assert hours(every("1h", phase="5m"), 2, after=_START) == [pytest.approx(5 / 60), pytest.approx(65 / 60)]


def test_an_anchor_defines_the_phase() -> None:
    weekly = every("7d", anchor=_START + timedelta(hours=9))

    assert hours(weekly, 3) == [9 - 168, 9, 177]
    assert every("7d", anchor=_START + timedelta(days=700, hours=9)) == weekly


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "1h"}, "^phase='1h': must be less than the period, '1h'$"),
        ({"phase": "soon"}, "^phase='soon' is not a duration"),
        ({"phase": "1m", "anchor": _START}, "^every: pass phase= or anchor=, not both$"),
        ({"anchor": _WITHOUT_ZONE}, "^anchor=.*a datetime with a zone"),
    ],
)
def test_an_invalid_phase_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        every("1h", **options)


@given(st.integers(100, 10**9), st.integers(0, 10**9), st.integers(-(2**45), 2**45))
def test_the_instants_of_a_phase_are_a_period_apart(period: int, phase: int, instant: int) -> None:
    rule = Every(period, phase % period)
    later = rule.next_after(instant)

    assert later is not None
    assert instant < later <= instant + period
    assert (later - rule.phase) % period == 0


def test_once_is_due_once() -> None:
    rule = once(_START)

    assert rule == Once(ms(_START))
    assert list(instants_after(rule, 0)) == [ms(_START)]
    assert rule.next_after(ms(_START)) is None
    with pytest.raises(InvalidOption, match=r"^once=.*a datetime with a zone"):
        once(_WITHOUT_ZONE)


def test_days_off_accept_common_spellings() -> None:
    holiday = date(2027, 4, 3)

    assert DaysOff.parse(["Sat", "sundays", "monday", "12-25", "2027-04-03"]) == DaysOff(
        weekdays=(0, 5, 6), yearly=((12, 25),), dates=(holiday,)
    )
    assert DaysOff.parse(["sun", "12-25", "2027-04-03"]).texts() == ["sun", "12-25", "2027-04-03"]
    assert DaysOff.parse([holiday, datetime(2027, 4, 3, 12, tzinfo=UTC)]) == DaysOff(dates=(holiday,))
    assert DaysOff.parse([DaysOff.parse("sat"), DaysOff.parse(holiday), "02-29"]) == DaysOff(  # type: ignore[arg-type]
        weekdays=(5,), yearly=((2, 29),), dates=(holiday,)
    )


@pytest.mark.parametrize("day", ["s", "satur", "13-01", "02-30", "2027-02-29", 5, None, ""])
def test_an_invalid_day_is_refused(day: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^exclude=.* is not a day: write 'sat', '12-25'"):
        DaysOff.parse([day])


def test_days_off_without_a_remaining_day_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"^exclude= covers all days"):
        DaysOff.parse(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
    with pytest.raises(InvalidOption, match=r"^exclude= covers all days"):
        DaysOff.parse([f"{day:%m-%d}" for day in (date(2000, 1, 1) + timedelta(days=n) for n in range(366))])
    with pytest.raises(InvalidOption, match=r"at 00:00 on Saturday, UTC, except on Saturdays is never due"):
        cron("0 0 * * SAT", exclude=["sat"])


def test_a_day_off_uses_the_zone_of_the_rule() -> None:
    paris = cron("30 0 * * *", tz="Europe/Paris", exclude=["2027-01-02"])
    tokyo = cron("30 0 * * *", tz="Asia/Tokyo", exclude=["2027-01-02"])

    assert hours(paris, 3, after=_START - timedelta(hours=2)) == [-0.5, 47.5, 71.5]
    assert hours(tokyo, 3, after=_START - timedelta(hours=10)) == [-8.5, 39.5, 63.5]
    assert hours(every("12h", exclude=["2027-01-02"]), 3, after=_START) == [12, 48, 60]


def test_a_day_off_ends_where_the_next_day_begins_even_if_not_at_midnight() -> None:
    # In Brazil, midnight of 4 November was skipped.
    rule = cron("*/30 * * * *", tz="America/Sao_Paulo", exclude=["2018-11-03"])

    assert rule.next_after(ms(datetime(2018, 11, 3, 12, tzinfo=UTC))) == ms(datetime(2018, 11, 4, 3, tzinfo=UTC))


@given(
    st.sampled_from(["Europe/Paris", "America/Sao_Paulo", "Africa/Cairo", "America/Havana", "UTC"]),
    st.sets(st.sampled_from(["mon", "sat", "sun", "10-25", "2018-11-04", "11-01", "2025-04-25"]), min_size=1),
    st.datetimes(datetime(2016, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
)
def test_days_off_remove_exactly_the_instants_on_them(zone: str, days: set[str], start: datetime) -> None:
    rule = cron("*/30 0,1,23 * * *", tz=zone)
    limited = cron("*/30 0,1,23 * * *", tz=zone, exclude=days)
    assert isinstance(limited, Limited)
    assert limited.days_off is not None
    instant = ms(start.replace(tzinfo=UTC))
    until = instant + 20 * _DAY

    def within(trigger: Trigger) -> list[int]:
        found: list[int] = []
        for each in instants_after(trigger, instant):
            if each > until:
                break
            found.append(each)
        return found

    def is_off(each: int) -> bool:
        assert limited.days_off is not None
        return limited.days_off.contains((_EPOCH + timedelta(milliseconds=each)).astimezone(limited.zone).date())

    assert within(limited) == [each for each in within(rule) if not is_off(each)]


def test_a_rare_day_among_days_off_is_found() -> None:
    # After 2020, 29 February falls on a Saturday only in 2048.
    rare = cron("0 0 29 2 *", exclude=["mon", "tue", "wed", "thu", "fri", "sun"])

    assert hours(rare, 1, after=datetime(2021, 1, 1, tzinfo=UTC)) == [
        (datetime(2048, 2, 29, tzinfo=UTC) - _START) / timedelta(hours=1)
    ]


def test_two_processes_print_equal_rules_alike() -> None:
    program = (
        "from taskmq.schedules.triggers import cron\n"
        "print(repr(cron('0 9 * * *', exclude=['sat', '12-25', '01-01', '2027-04-03', '2027-05-01'])))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, timeout=60, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip

    assert len(printed) == 1


def test_jitter_derives_from_the_name_and_spreads() -> None:
    shifts = [jitter_of(f"schedule-{n}", 60_000) for n in range(6_000)]

    assert shifts == [jitter_of(f"schedule-{n}", 60_000) for n in range(6_000)]
    assert min(shifts) >= 0
    assert max(shifts) <= 60_000
    tenths = [sum(shift * 10 // 60_001 == tenth for shift in shifts) for tenth in range(10)]
    assert all(480 < count < 720 for count in tenths)
    assert jitter_of("any", 0) == 0


def test_limits_after_the_year_9999_are_refused() -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12)))

    with pytest.raises(InvalidOption, match=r"^once=.*: is after the year 9999, UTC"):
        once(last)
    with pytest.raises(InvalidOption, match=r"^start=.*: is after the year 9999, UTC"):
        every("1d", start=last)
    with pytest.raises(InvalidOption, match=r"^end=.*: is after the year 9999, UTC"):
        every("1d", end=last)


@pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+12", "Etc/GMT-14", "Europe/Paris"])
def test_the_end_of_the_calendar_ends_a_cron_expression(zone: str) -> None:
    found = list(instants_after(cron("* * * * *", tz=zone), LAST_INSTANT - 3 * _DAY))

    assert found == sorted(found)
    assert 0 < len(found) <= 3 * _DAY // 60_000
    assert found[-1] <= LAST_INSTANT


def test_days_off_at_the_end_of_the_calendar_end_a_schedule() -> None:
    trigger = every("1h", exclude=["12-31"])

    assert trigger.next_after(LAST_INSTANT - 2 * _HOUR) is None
    assert trigger.next_after(LAST_INSTANT - 2 * _DAY) is not None


def test_instants_of_a_custom_trigger_end_with_the_calendar() -> None:
    class Later:
        def next_after(self, instant: int, /) -> int | None:
            return instant + _DAY

        def describe(self) -> str:
            return "later"

    assert len(list(instants_after(Later(), LAST_INSTANT - 3 * _DAY))) == 3
