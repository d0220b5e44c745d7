"""Days with unusual clock changes, one by one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmq.schedules.triggers import Cron

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _on(cron: Cron, first_day: str, days: int = 1) -> list[str]:
    """Return the instants between two local midnights of UTC, with a margin: local time and offset."""
    start = datetime.fromisoformat(first_day).replace(tzinfo=UTC) - timedelta(hours=15)
    end = start + timedelta(days=days, hours=30)
    found: list[str] = []
    instant = cron.next_after((start - _EPOCH) // timedelta(milliseconds=1) - 1)
    last = (datetime.fromisoformat(first_day) + timedelta(days=days - 1)).date().isoformat()
    while instant is not None and instant < (end - _EPOCH) // timedelta(milliseconds=1):
        local = (_EPOCH + timedelta(milliseconds=instant)).astimezone(cron.zone)
        if first_day <= local.date().isoformat() <= last:
            found.append(local.isoformat(" ", "minutes")[5:])
        instant = cron.next_after(instant)
    return found


_FORWARD = [
    # Clocks go from 02:00 to 03:00.
    ("America/New_York", "2026-03-08", "30 2 * * *", ["03-08 03:00-04:00"]),
    ("Europe/Berlin", "2026-03-29", "30 2 * * *", ["03-29 03:00+02:00"]),
    ("Europe/Berlin", "2026-03-29", "0,15,30,45 2 * * *", ["03-29 03:00+02:00"]),
    ("Europe/Berlin", "2026-03-29", "0 2,3 * * *", ["03-29 03:00+02:00"]),
    # From 02:00 to 02:30.
    ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["10-04 02:30+11:00"]),
    ("Australia/Lord_Howe", "2026-10-04", "30 2 * * *", ["10-04 02:30+11:00"]),
    # Midnight does not exist.
    ("Africa/Cairo", "2025-04-25", "0 0 * * *", ["04-25 01:00+03:00"]),
    ("America/Sao_Paulo", "2018-11-04", "0 0 * * *", ["11-04 01:00-02:00"]),
    ("Asia/Tehran", "2022-03-22", "0 0 * * *", ["03-22 01:00+04:30"]),
    # Two hours are skipped, from 01:00 to 03:00.
    ("Antarctica/Troll", "2026-03-29", "30 1,2 * * *", ["03-29 03:00+02:00"]),
    # Out of Ramadan, in March.
    ("Africa/Casablanca", "2026-03-22", "30 2 * * *", ["03-22 03:00+01:00"]),
]


@pytest.mark.parametrize(("zone", "day", "expression", "due"), _FORWARD)
def test_a_nonexistent_time_is_due_at_the_first_existing_one(
    zone: str, day: str, expression: str, due: list[str]
) -> None:
    assert _on(Cron(expression, zone), day) == due


@pytest.mark.parametrize(("zone", "day", "expression", "due"), _FORWARD)
def test_a_nonexistent_time_can_be_skipped(zone: str, day: str, expression: str, due: list[str]) -> None:
    # Only the instants after the gap that the expression selects remain.
    minutes, hours, *_ = (field.split(",") for field in expression.split())
    said = {f"{int(hour):02}:{int(minute):02}" for minute in minutes for hour in hours}

    assert _on(Cron(expression, zone, dst_gap="skip"), day) == [each for each in due if each[6:11] in said]


_BACK: list[tuple[str, str, str, list[str], list[str]]] = [
    # Clocks go from 02:00 to 01:00.
    ("America/New_York", "2026-11-01", "30 1 * * *", ["11-01 01:30-04:00"], ["11-01 01:30-05:00"]),
    # From 03:00 to 02:00.
    ("Europe/Berlin", "2026-10-25", "30 2 * * *", ["10-25 02:30+02:00"], ["10-25 02:30+01:00"]),
    ("Europe/Berlin", "2026-10-25", "0 2 * * *", ["10-25 02:00+02:00"], ["10-25 02:00+01:00"]),
    # From 02:00 to 01:30.
    ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["04-05 01:45+11:00"], ["04-05 01:45+10:30"]),
    # Midnight occurs twice.
    ("America/Havana", "2025-11-02", "0 0 * * *", ["11-02 00:00-04:00"], ["11-02 00:00-05:00"]),
    # Two hours occur twice.
    ("Antarctica/Troll", "2026-10-25", "30 1 * * *", ["10-25 01:30+02:00"], ["10-25 01:30+00:00"]),
    # Into Ramadan, in February.
    ("Africa/Casablanca", "2026-02-15", "30 2 * * *", ["02-15 02:30+01:00"], ["02-15 02:30+00:00"]),
]


@pytest.mark.parametrize(("zone", "day", "expression", "first", "second"), _BACK)
def test_a_repeated_time_is_due_the_first_or_the_second_or_both_times(
    zone: str, day: str, expression: str, first: list[str], second: list[str]
) -> None:
    assert _on(Cron(expression, zone), day) == first
    assert _on(Cron(expression, zone, dst_fold="second"), day) == second
    assert _on(Cron(expression, zone, dst_fold="both"), day) == [*first, *second]


@pytest.mark.parametrize(
    ("zone", "day", "expression"),
    [(*case[:3],) for case in _BACK] + [("Europe/Berlin", "2026-06-01", "30 2 * * *")],
)
def test_each_day_of_a_week_around_a_repeated_time_has_one_instant(zone: str, day: str, expression: str) -> None:
    before = (datetime.fromisoformat(day) - timedelta(days=3)).date().isoformat()
    for options in ({}, {"dst_fold": "second"}, {"dst_gap": "skip"}):
        due = _on(Cron(expression, zone, **options), before, days=7)  # type: ignore[arg-type]
        assert len({each[:5] for each in due}) == len(due) == 7


def test_instants_of_a_day_that_a_country_skipped_are_due_at_its_end() -> None:
    # Samoa went from 29 to 31 December.
    assert _on(Cron("0 9 * * *", "Pacific/Apia"), "2011-12-29", days=3) == [
        "12-29 09:00-10:00",
        "12-31 00:00+14:00",
        "12-31 09:00+14:00",
    ]
    assert _on(Cron("0 9 * * *", "Pacific/Apia", dst_gap="skip"), "2011-12-29", days=3) == [
        "12-29 09:00-10:00",
        "12-31 09:00+14:00",
    ]


def _gaps(cron: Cron, start: str, hours: int) -> set[int]:
    """Return the minutes between the instants in these hours."""
    instant = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()) * 1000
    end, found = instant + hours * 3_600_000, set[int]()
    following = cron.next_after(instant)
    while following is not None and following < end:
        later = cron.next_after(following)
        assert later is not None
        found.add((later - following) // 60_000)
        following = later
    return found


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("America/New_York", "2026-03-08"), ("America/New_York", "2026-11-01"), ("Europe/Berlin", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25"), ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),
        ("Africa/Cairo", "2025-04-25"), ("America/Sao_Paulo", "2018-11-04"), ("America/Havana", "2025-11-02"),
        ("Antarctica/Troll", "2026-03-29"), ("Pacific/Apia", "2011-12-30"), ("Africa/Casablanca", "2026-02-15"),
        ("Asia/Tehran", "2022-03-22"),
    ],
)  # fmt: skip
def test_half_hourly_instants_follow_elapsed_time(zone: str, around: str) -> None:
    start = (datetime.fromisoformat(around) - timedelta(days=2)).isoformat()

    assert _gaps(Cron("*/30 * * * *", zone), start, 96) == {30}
    assert _gaps(Cron("*/5 * * * *", zone, dst_gap="run_after", dst_fold="second"), start, 96) == {5}


@pytest.mark.parametrize("hour", ["*", "*/2", "1-23/2", "0-23", "H/2"])
def test_a_star_or_a_step_in_hours_follows_elapsed_time(hour: str) -> None:
    assert Cron(f"0 {hour} * * *", "Europe/Berlin").follows_real_time


@pytest.mark.parametrize("hour", ["2", "1,2", "0-5", "H", "H(0-5)"])
def test_named_hours_follow_the_clock(hour: Any) -> None:
    assert not Cron(f"*/5 {hour} * * *", "Europe/Berlin").follows_real_time


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2026-03-29T01:00"), ("Europe/Berlin", "2026-10-25T01:00"),
        ("Australia/Lord_Howe", "2026-10-03T15:30"), ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ],
)  # fmt: skip
def test_seconds_match_a_clock_read_each_second(zone: str, change: str) -> None:
    rule = Cron("*/25 */10 1-2 * * *", zone, seconds=True)
    middle = int(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp())
    expected: list[int] = []
    shown: datetime | None = None
    for second in range(middle - 9_000, middle + 9_000):
        wall = datetime.fromtimestamp(second, rule.zone).replace(tzinfo=None, fold=0)
        missed = shown is not None and any(
            _selects(shown + timedelta(seconds=n)) for n in range(1, (wall - shown) // timedelta(seconds=1))
        )
        if shown is None or wall > shown:
            if missed or _selects(wall):
                expected.append(second * 1000)
            shown = wall

    found: list[int] = []
    instant = rule.next_after((middle - 9_000) * 1000 - 1)
    while instant is not None and instant < (middle + 9_000) * 1000:
        found.append(instant)
        instant = rule.next_after(instant)
    assert found == expected
    assert len(expected) > 10


def _selects(wall: datetime) -> bool:
    return wall.second in (0, 25, 50) and wall.minute % 10 == 0 and wall.hour in (1, 2)
