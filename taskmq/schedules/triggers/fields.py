"""Fields of a cron expression as bits, and the search for matching wall-clock times."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

EVERY_MINUTE: Final = (1 << 60) - 1
EVERY_HOUR: Final = (1 << 24) - 1
EVERY_DAY: Final = (1 << 32) - 2
EVERY_MONTH: Final = (1 << 13) - 2
LAST: Final = -1
_DAYS_IN: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SATURDAY: Final = 5
_SUNDAY: Final = 6


@dataclass(frozen=True, slots=True)
class Fields:
    """Values selected by each field: bit `n` is set if value `n` is selected.

    Args:
        seconds: bits 0 to 59; the same for `minutes`.
        hours: bits 0 to 23.
        days: days of the month, bits 1 to 31.
        months: bits 1 to 12.
        weekdays: bits 0 (Monday) to 6; all if `nth` selects them.
        last_day: whether the last day of the month is selected as well (`L`).
        nearest: days of the month whose nearest weekdays are selected (`15W`).
        nth: pairs of a weekday and its number in the month, from 1, or `LAST`.
        either: whether a day matching `days` or the weekdays is selected; else it must match both.
    """

    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    last_day: bool = False
    nearest: tuple[int, ...] = ()
    nth: tuple[tuple[int, int], ...] = ()
    either: bool = False

    def first_from(self, wall: datetime) -> datetime | None:
        """Return the first selected wall-clock time at or after `wall`, in whole seconds; None after year 9999.

        Both are naive. The search is long only if no day is ever selected.
        """
        year, month, day = wall.year, wall.month, wall.day
        days = self.days_of(year, month)
        if days >> day & 1:
            hour, minute = wall.hour, wall.minute
            if self.hours >> hour & 1:
                if self.minutes >> minute & 1 and (later := self.seconds >> wall.second):
                    return datetime(year, month, day, hour, minute, wall.second + _lowest(later))  # noqa: DTZ001 - wall-clock time
                if later := self.minutes >> minute + 1:
                    return datetime(  # noqa: DTZ001 - wall-clock time
                        year, month, day, hour, minute + 1 + _lowest(later), _lowest(self.seconds)
                    )
            if later := self.hours >> hour + 1:
                return self._first_within(year, month, day, hour + 1 + _lowest(later))
        days &= -2 << day
        while not days:
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            if year > 9999:
                return None
            days = self.days_of(year, month)
        return self._first_within(year, month, _lowest(days), _lowest(self.hours))

    def days_of(self, year: int, month: int) -> int:
        """Return the selected days of a month as bits."""
        if not self.months >> month & 1:
            return 0
        days, weekdays = self.days, self.weekdays
        count = days_in(year, month)
        if weekdays != 0b1111111 or self.nth or self.nearest:
            first = date(year, month, 1).weekday()
            if self.nearest:
                days = sum({1 << _nearest(day, first, count) for day in self.nearest})
            by_week = self._nth_of(first, count) if self.nth else _days_on(weekdays, first)
        else:
            by_week = EVERY_DAY
        if self.last_day:
            days |= 1 << count
        chosen = days | by_week if self.either else days & by_week
        return chosen & (1 << count + 1) - 2

    def _first_within(self, year: int, month: int, day: int, hour: int) -> datetime:
        return datetime(year, month, day, hour, _lowest(self.minutes), _lowest(self.seconds))  # noqa: DTZ001 - wall-clock time

    def _nth_of(self, first: int, count: int) -> int:
        days = 0
        for weekday, number in self.nth:
            day = 1 + (weekday - first) % 7
            # A fifth one that the month lacks lies beyond its end and is cut off.
            days |= 1 << (day + 7 * (number - 1) if number != LAST else day + (count - day) // 7 * 7)
        return days


def days_in(year: int, month: int) -> int:
    """Return the number of days in a month."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _DAYS_IN[month]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _days_on(weekdays: int, first: int) -> int:
    """Return the days that fall on `weekdays`, in a month that begins on weekday `first`."""
    # Day 1 is the weekday `first`: a week that begins there, five times, one bit up.
    week = (weekdays | weekdays << 7) >> first & 0b1111111
    return (week | week << 7 | week << 14 | week << 21 | week << 28) << 1


def _nearest(day: int, first: int, count: int) -> int:
    """Return the day from Monday to Friday nearest to `day` within the month."""
    day = min(day, count)
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < count else day - 2
    return day
