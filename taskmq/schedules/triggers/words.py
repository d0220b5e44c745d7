"""Descriptions of rules in plain English."""

from collections.abc import Callable, Sequence
from typing import Final

from taskmq.schedules.triggers.fields import EVERY_DAY, EVERY_HOUR, EVERY_MINUTE, EVERY_MONTH, LAST, Fields

_UNITS: Final = (
    (604_800_000, "week"),
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1000, "second"),
    (1, "millisecond"),
)
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_ORDINALS: Final = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", LAST: "last"}
_EVERY_WEEKDAY: Final = 0b1111111
_AT_FULL: Final = 1
_MOST_TIMES: Final = 5


def every_in_words(period: int, phase: int = 0) -> str:
    """Describe a period, such as "every 30 seconds"; a phase is described as an offset from its multiples."""
    amount, unit = next((period // size, name) for size, name in _UNITS if period % size == 0)
    words = f"every {unit}" if amount == 1 else f"every {amount} {unit}s"
    return f"{words}, {_amount(phase)} after the multiples of it" if phase else words


def cron_in_words(fields: Fields) -> str:
    """Describe fields, such as "every 5 minutes from 09:00 to 17:59 on Monday to Friday"."""
    words = [_time(fields), _day(fields)]
    if fields.months != EVERY_MONTH:
        words.append(f"in {_join_names(_values(fields.months), lambda month: _MONTHS[month - 1])}")
    if not "".join(words[1:]) and _at_times(fields):
        words[1] = "every day"
    return " ".join(part for part in words if part)


def _amount(milliseconds: int) -> str:
    words: list[str] = []
    for size, name in _UNITS[1:]:
        amount, milliseconds = divmod(milliseconds, size)
        if amount:
            words.append(f"{amount} {name}{'' if amount == 1 else 's'}")
    return " ".join(words)


def _time(fields: Fields) -> str:
    minutes, seconds = _values(fields.minutes), _values(fields.seconds)
    if times := _at_times(fields):
        return f"at {_join(times)}"
    if fields.seconds == _AT_FULL:
        return _by_the_minute(fields)
    rhythm = _rhythm(fields.seconds, "second", "minute")
    if fields.minutes == EVERY_MINUTE:
        return (rhythm or f"at {_number('second', seconds)} of every minute") + _hours(fields.hours)
    words = rhythm or f"at {_number('second', seconds)}"
    return f"{words}, in {_number('minute', minutes)} of {_each_hour(fields.hours)}"


def _at_times(fields: Fields) -> list[str]:
    """Return the times of the day, if there are few."""
    hours, minutes, seconds = _values(fields.hours), _values(fields.minutes), _values(fields.seconds)
    if len(hours) * len(minutes) * len(seconds) > _MOST_TIMES:
        return []
    times = [(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
    return [_clock(*time, with_second=fields.seconds != _AT_FULL) for time in times]


def _by_the_minute(fields: Fields) -> str:
    if (rhythm := _rhythm(fields.minutes, "minute", "hour")) is not None:
        return rhythm + _hours(fields.hours)
    if fields.minutes != _AT_FULL:
        minutes = _values(fields.minutes)
        unit = "minute" if minutes == [1] else "minutes"
        return f"at {_join([str(minute) for minute in minutes])} {unit} past {_each_hour(fields.hours)}"
    if fields.hours == EVERY_HOUR:
        return "every hour, on the hour"
    if (rhythm := _rhythm(fields.hours, "hour", "day")) is not None:
        return rhythm
    if any(first == last for first, last in _runs(_values(fields.hours))):
        return f"at {_join([_clock(hour, 0, 0, with_second=False) for hour in _values(fields.hours)])}"
    return f"every hour, on the hour,{_hours(fields.hours, last_minute=0)}"


def _rhythm(bits: int, unit: str, whole: str) -> str | None:
    """Describe evenly spaced values, such as "every 5 minutes", from 0 to the end of the field."""
    size = {"second": 60, "minute": 60, "hour": 24}[unit]
    step = _step(bits, size)
    if step <= 1:
        return f"every {unit}" if step else None
    return f"every {step} {unit}s" if size % step == 0 else f"every {step} {unit}s from the start of each {whole}"


def _hours(bits: int, *, last_minute: int = 59) -> str:
    """Describe the hours after a rhythm; "" if all are selected."""
    if _step(bits, 24):
        return "" if bits == EVERY_HOUR else f" of {_each_hour(bits)}"
    runs = [f"from {first:02}:00 to {last:02}:{last_minute:02}" for first, last in _runs(_values(bits))]
    return f" {_join(runs)}"


def _each_hour(bits: int) -> str:
    """Describe the hours after a part that repeats in each."""
    step = _step(bits, 24)
    if step > 1:
        return f"every {'second' if step == 2 else 'third' if step == 3 else f'{step}th'} hour from 00:00"
    return f"every hour{_hours(bits)}"


def _step(bits: int, size: int) -> int:
    """Return the step of evenly spaced values from 0 to the end of the field; 0 if there is none."""
    values = _values(bits)
    if len(values) < 2 or values[0] != 0:
        return 0
    return values[1] if values == list(range(0, size, values[1])) else 0


def _clock(hour: int, minute: int, second: int, *, with_second: bool) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if with_second else f"{hour:02}:{minute:02}"


def _number(unit: str, values: Sequence[int]) -> str:
    return f"{unit}{'' if len(values) == 1 else 's'} {_join([str(value) for value in values])}"


def _day(fields: Fields) -> str:
    of_month, of_week = _of_month(fields), _of_week(fields)
    if not of_month or not of_week:
        return f"on {of_month or of_week}" if of_month or of_week else ""
    return f"on {of_month} or on {of_week}" if fields.either else f"on {of_month} if it is {_article(of_week)}"


def _of_month(fields: Fields) -> str:
    words: list[str] = []
    if fields.nearest:
        words = [f"the weekday nearest to day {_join([str(day) for day in fields.nearest])}"]
    elif fields.days != EVERY_DAY and fields.days:
        days = _values(fields.days)
        words = [f"{'days' if len(days) > 1 else 'day'} {_join_names(days, str)}"]
    if fields.last_day:
        words.append("the last day")
    return f"{_join(words)} of the month" if words else ""


def _of_week(fields: Fields) -> str:
    if fields.nth:
        return f"{_join([f'the {_ORDINALS[number]} {_WEEKDAYS[day]}' for day, number in fields.nth])} of the month"
    if fields.weekdays == _EVERY_WEEKDAY:
        return ""
    return _join_names(_values(fields.weekdays), lambda day: _WEEKDAYS[day])


def _article(weekdays: str) -> str:
    return weekdays if weekdays.startswith("the ") else f"a {weekdays}"


def _join(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _join_names(values: Sequence[int], name: Callable[[int], str]) -> str:
    """Describe values; three or more in a row as first and last."""
    words = [
        f"{name(first)} to {name(last)}" if last - first > 1 else _join([name(n) for n in range(first, last + 1)])
        for first, last in _runs(values)
    ]
    if all(last - first < 2 for first, last in _runs(values)):
        words = [name(value) for value in values]
    return _join(words)


def _values(bits: int) -> list[int]:
    return [value for value in range(bits.bit_length()) if bits >> value & 1]


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the stretches without a gap, each as its first and last value."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
