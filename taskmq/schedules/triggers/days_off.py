"""Days without occurrences."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from taskmq.errors import InvalidOption

_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DaysOff:
    """A calendar of days on which a schedule is not due.

    Args:
        weekdays: every week; 0 is Monday.
        yearly: every year, as month and day.
        dates: single days.
    """

    # Sorted tuples instead of sets, so that two processes print equal calendars alike.
    weekdays: tuple[int, ...] = ()
    yearly: tuple[tuple[int, int], ...] = ()
    dates: tuple[date, ...] = ()

    @classmethod
    def parse(cls, days: "Iterable[str | date | DaysOff]") -> "DaysOff":
        """Parse days: "sat", "saturday", "12-25", "2026-04-03", dates, or other calendars.

        Raises:
            InvalidOption: a value is not a day, or no weekday is left.
        """
        weekdays: set[int] = set()
        yearly: set[tuple[int, int]] = set()
        dates: set[date] = set()
        for day in [days] if isinstance(days, (str, date, DaysOff)) else days:
            match day:
                case DaysOff():
                    weekdays.update(day.weekdays)
                    yearly.update(day.yearly)
                    dates.update(day.dates)
                case date():
                    dates.add(day.date() if isinstance(day, datetime) else day)
                case _ if (weekday := _weekday(day)) is not None:
                    weekdays.add(weekday)
                case _ if (found := _date(f"2000-{day}")) is not None:
                    yearly.add((found.month, found.day))
                case _ if (found := _date(day)) is not None:
                    dates.add(found)
                case _:
                    raise InvalidOption(f"exclude={day!r} is not a day: write 'sat', '12-25', '2026-04-03' or a date")
        if len(weekdays) == len(_WEEKDAYS) or len(yearly) == 366:
            raise InvalidOption("exclude= covers all days, so nothing would ever be due")
        return cls(tuple(sorted(weekdays)), tuple(sorted(yearly)), tuple(sorted(dates)))

    def contains(self, day: date) -> bool:
        """Return whether nothing is due on this day."""
        return day.weekday() in self.weekdays or (day.month, day.day) in self.yearly or day in self.dates

    def texts(self) -> list[str]:
        """Return the days as `parse` reads them."""
        return [
            *(_WEEKDAYS[weekday][:3] for weekday in self.weekdays),
            *(f"{month:02}-{day:02}" for month, day in self.yearly),
            *(day.isoformat() for day in self.dates),
        ]

    def describe(self) -> list[str]:
        """Describe the days: "Saturdays", "25 December", "2026-04-03"."""
        return [
            *(f"{_WEEKDAYS[weekday].capitalize()}s" for weekday in self.weekdays),
            *(f"{day} {_MONTHS[month - 1]}" for month, day in self.yearly),
            *(day.isoformat() for day in self.dates),
        ]


def _weekday(text: object) -> int | None:
    lowered = str(text).strip().lower()
    if len(lowered) < 3:
        return None
    return next((n for n, name in enumerate(_WEEKDAYS) if lowered in (name, name[:3], f"{name}s")), None)


def _date(text: object) -> date | None:
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        return None
