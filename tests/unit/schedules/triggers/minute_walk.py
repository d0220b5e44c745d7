"""The meaning of cron expressions without `taskmq.schedules.triggers`: a clock is read each minute.

Each expression has its meaning beside it, written by hand. Time is minutes since the epoch.
"""

import calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

FIRST: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) // 60
LAST: Final = int(datetime(2038, 1, 1, tzinfo=UTC).timestamp()) // 60
DAY: Final = 1440
# Local time may be a day away from UTC.
_FIRST_DAY: Final = FIRST // DAY - 2
_DAYS: Final = LAST // DAY - _FIRST_DAY + 2
_EPOCH: Final = date(1970, 1, 1)
# No zone changes its offset and back within a day, so a day with equal ends is not searched.
_LEAPS: Final = (DAY, 60, 1)


@dataclass(frozen=True)
class Meaning:
    """An expression and the wall-clock minutes that it selects."""

    expression: str
    time: Callable[[int, int], bool]
    day: Callable[[date], bool] = lambda _: True
    by_elapsed_time: bool = False
    both_days: bool = False

    @cached_property
    def minutes(self) -> bytes:
        """Return one byte for each minute of local time, from `_FIRST_DAY` on."""
        times = bytes(self.time(*divmod(minute, 60)) for minute in range(DAY))
        empty = bytes(DAY)
        days = (_EPOCH + timedelta(days=_FIRST_DAY + n) for n in range(_DAYS))
        return b"".join(times if self.day(day) else empty for day in days)

    def forget(self) -> None:
        self.__dict__.pop("minutes", None)

    @property
    def per_day(self) -> int:
        return sum(self.time(*divmod(minute, 60)) for minute in range(DAY))

    @property
    def average(self) -> float:
        """Return the average number of instants a day over the years."""
        return self.minutes.count(1) / _DAYS

    def within(self, start: int, end: int) -> Iterator[int]:
        """Return the selected minutes of local time from `start` up to `end`."""
        origin = _FIRST_DAY * DAY
        found = self.minutes.find(1, start - origin, end - origin)
        while found >= 0:
            yield found + origin
            found = self.minutes.find(1, found + 1, end - origin)


@dataclass(frozen=True)
class Stretch:
    """A period from `start` up to `end` in which the zone's clocks show UTC plus `offset` minutes."""

    start: int
    end: int
    offset: int


def stretches(zone: ZoneInfo, start: int = FIRST, end: int = LAST) -> tuple[Stretch, ...]:
    """Return the periods of the zone, found by reading its clocks."""
    found: list[Stretch] = []
    since, shown = start, _offset(zone, start)
    for minute in _changes(zone, start, end, _LEAPS):
        found.append(Stretch(since, minute, shown))
        since, shown = minute, _offset(zone, minute)
    return (*found, Stretch(since, end, shown))


def _changes(zone: ZoneInfo, start: int, end: int, leaps: tuple[int, ...]) -> Iterator[int]:
    """Return the minutes from `start` up to `end` in which the offset changes."""
    leap, *finer = leaps
    before = _offset(zone, start)
    for minute in range(start, end, leap):
        after = _offset(zone, minute + leap)
        if after != before and finer:
            yield from _changes(zone, minute, minute + leap, tuple(finer))
        elif after != before:
            yield minute + 1
        before = after


def due(
    meaning: Meaning, walk: tuple[Stretch, ...], start: int, end: int, *, gap: str = "run_after", fold: str = "first"
) -> list[int]:
    """Return the minutes in which an observer of the clock from `start` up to `end` starts the job."""
    started: list[int] = []
    # Earlier readings of the clock, which tell whether the present one is new or skips something.
    shown: int | None = None
    for stretch in walk:
        since, until = max(stretch.start, start), min(stretch.end, end)
        if since >= until:
            continue
        now, then = since + stretch.offset, until + stretch.offset
        selected = list(meaning.within(now, then))
        if shown is None or meaning.by_elapsed_time:
            started += [wall - stretch.offset for wall in selected]
            shown = then
            continue
        if now > shown and gap == "run_after" and (not selected or selected[0] != now):
            started += [since] * any(True for _ in meaning.within(shown, now))
        if now < shown and fold == "second":
            # A repeated hour: jobs started the first time are not started again.
            again = {wall for wall in selected if wall < shown}
            before = next(one for one in walk if one.end == stretch.start).offset
            started = [one for one in started if one + before not in again]
        if now < shown and fold == "first":
            selected = [wall for wall in selected if wall >= shown]
        started += [wall - stretch.offset for wall in selected]
        shown = max(shown, then)
    return started


def all_zones() -> dict[str, list[str]]:
    """Return the host's zones; those with equal data only under the first name."""
    found: dict[bytes, list[str]] = {}
    for name in sorted(available_timezones()):
        file = next((path for root in _roots() if (path := root / name).is_file()), None)
        found.setdefault(name.encode() if file is None else file.read_bytes(), []).append(name)
    return {names[0]: names for names in found.values()}


def _roots() -> list[Path]:
    import importlib.util
    import zoneinfo

    spec = importlib.util.find_spec("tzdata")
    package = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "zoneinfo"]
    return [*map(Path, zoneinfo.TZPATH), *package]


def _offset(zone: ZoneInfo, minute: int) -> int:
    offset = datetime.fromtimestamp(minute * 60, zone).utcoffset()
    assert offset is not None
    minutes, rest = divmod(offset, timedelta(minutes=1))
    assert not rest, f"{zone} has seconds in its offset"
    return minutes


# Meanings of expressions


def at(*times: str) -> Callable[[int, int], bool]:
    selected = {tuple(map(int, time.split(":"))) for time in times}
    return lambda hour, minute: (hour, minute) in selected


def on(*weekdays: int) -> Callable[[date], bool]:
    """Monday is 1, as for people."""
    return lambda day: day.isoweekday() in weekdays


def number_of(*days: int) -> Callable[[date], bool]:
    return lambda day: day.day in days


def is_last_day(day: date) -> bool:
    return (day + timedelta(days=1)).month != day.month


def is_last_of_its_weekday(day: date) -> bool:
    return (day + timedelta(days=7)).month != day.month


def is_nearest_weekday_to(number: int) -> Callable[[date], bool]:
    def nearest(day: date) -> bool:
        wanted = date(day.year, day.month, min(number, calendar.monthrange(day.year, day.month)[1]))
        near = [wanted + timedelta(days=n) for n in (0, -1, 1, -2, 2)]
        return day == next(one for one in near if one.month == day.month and one.isoweekday() < 6)

    return nearest


MEANINGS: Final = (
    # By elapsed time: the hour is "*" or a step.
    Meaning("* * * * *", lambda hour, minute: True, by_elapsed_time=True),
    Meaning("*/5 * * * *", lambda hour, minute: minute % 5 == 0, by_elapsed_time=True),
    Meaning("*/7 * * * *", lambda hour, minute: minute % 7 == 0, by_elapsed_time=True),
    Meaning("*/30 * * * *", lambda hour, minute: minute in (0, 30), by_elapsed_time=True),
    Meaning("3/20 * * * *", lambda hour, minute: minute in (3, 23, 43), by_elapsed_time=True),
    Meaning("@hourly", lambda hour, minute: minute == 0, by_elapsed_time=True),
    Meaning("59 * * * *", lambda hour, minute: minute == 59, by_elapsed_time=True),
    Meaning("15,45 * * * MON-FRI", lambda hour, minute: minute in (15, 45), on(1, 2, 3, 4, 5), by_elapsed_time=True),
    Meaning("0 */2 * * *", lambda hour, minute: hour % 2 == 0 and minute == 0, by_elapsed_time=True),
    Meaning("30 1-23/3 * * *", lambda hour, minute: hour % 3 == 1 and minute == 30, by_elapsed_time=True),
    Meaning("0 */6 1 * *", lambda hour, minute: hour % 6 == 0 and minute == 0, number_of(1), by_elapsed_time=True),
    Meaning("10 */4 * * 0", lambda hour, minute: hour % 4 == 0 and minute == 10, on(7), by_elapsed_time=True),
    # By the wall clock, often.
    Meaning("*/10 0-3 * * *", lambda hour, minute: hour <= 3 and minute % 10 == 0),
    Meaning("* 2 * * *", lambda hour, minute: hour == 2),
    Meaning("*/15 22-1 * * *", lambda hour, minute: hour in (22, 23, 0, 1) and minute % 15 == 0),
    Meaning("*/20 1,2 * * *", lambda hour, minute: hour in (1, 2) and minute % 20 == 0),
    # Each day.
    Meaning("@daily", at("0:00")),
    Meaning("30 2 * * *", at("2:30")),
    Meaning("0 2 * * *", at("2:00")),
    Meaning("0 3 * * *", at("3:00")),
    Meaning("30 1 * * *", at("1:30")),
    Meaning("45 1 * * *", at("1:45")),
    Meaning("30 0 * * *", at("0:30")),
    Meaning("59 23 * * *", at("23:59")),
    Meaning("0 12 * * *", at("12:00")),
    Meaning("0 1,2,3 * * *", at("1:00", "2:00", "3:00")),
    Meaning("0 9,17 * * *", at("9:00", "17:00")),
    Meaning("15 0,23 * * *", at("0:15", "23:15")),
    # On some days of the week.
    Meaning("30 2 * * SUN", at("2:30"), on(7)),
    Meaning("@weekly", at("0:00"), on(7)),
    Meaning("0 2 * * sat,sun", at("2:00"), on(6, 7)),
    Meaning("0 0 * * 5-7", at("0:00"), on(5, 6, 7)),
    Meaning("0 6 * * 1-5", at("6:00"), on(1, 2, 3, 4, 5)),
    # On some days of the month.
    Meaning("@monthly", at("0:00"), number_of(1)),
    Meaning("30 2 25-31 * *", at("2:30"), lambda day: day.day >= 25),
    Meaning("0 0 L * *", at("0:00"), is_last_day),
    Meaning("30 1 15,L * *", at("1:30"), lambda day: day.day == 15 or is_last_day(day)),
    Meaning("0 8 15W * *", at("8:00"), is_nearest_weekday_to(15)),
    Meaning("0 8 31W * *", at("8:00"), is_nearest_weekday_to(31)),
    Meaning("0 8 1W * *", at("8:00"), is_nearest_weekday_to(1)),
    # The nth weekday of the month.
    Meaning("30 2 * * 7#5", at("2:30"), lambda day: on(7)(day) and day.day > 28),
    Meaning("30 2 * * L7", at("2:30"), lambda day: on(7)(day) and is_last_of_its_weekday(day)),
    Meaning("0 1 * * SUN#1", at("1:00"), lambda day: on(7)(day) and day.day <= 7),
    Meaning("0 10 * * 2#2,2#4", at("10:00"), lambda day: on(2)(day) and day.day in {*range(8, 15), *range(22, 29)}),
    # Both day fields, either day field.
    Meaning("0 0 13 * 5", at("0:00"), lambda day: day.day == 13 or on(5)(day)),
    Meaning("0 0 13 * 5", at("0:00"), lambda day: day.day == 13 and on(5)(day), both_days=True),
    Meaning("30 2 8-14 3 0", at("2:30"), lambda day: day.month == 3 and on(7)(day) and 8 <= day.day < 15,
            both_days=True),
    # In some months, and rarely.
    Meaning("@yearly", at("0:00"), lambda day: (day.month, day.day) == (1, 1)),
    Meaning("0 0 29 2 *", at("0:00"), lambda day: (day.month, day.day) == (2, 29)),
    Meaning("30 2 * MAR,oct-Nov *", at("2:30"), lambda day: day.month in (3, 10, 11)),
)  # fmt: skip
