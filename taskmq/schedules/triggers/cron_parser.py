"""Parser of cron expressions: taskmq's own rules first, then croniter."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from taskmq.errors import InvalidOption
from taskmq.schedules.triggers.fields import EVERY_DAY, EVERY_HOUR, EVERY_MINUTE, EVERY_MONTH, LAST, Fields

if TYPE_CHECKING:
    from croniter import croniter

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names that stand for a whole expression."""

_HASHED: Final = re.compile(r"(?:^|,)h", re.IGNORECASE)
_RANDOM: Final = re.compile(r"(?:^|,)r(?:$|[(/,])", re.IGNORECASE)
_SPELT_OTHERWISE: Final = re.compile(r"(?:^|,)(?:[0-7]l|lw)(?:$|,|/)", re.IGNORECASE)
_STEP: Final = re.compile(r"/(\d+)")
_ONE_VALUE: Final = re.compile(r"(^|,)(\w+)-(\w+)(/\d+)?(?=,|$)")
_SUNDAY_TO_SUNDAY: Final = re.compile(r"(^|,)7-(?:0|sun)(?:/\d+)?(?=,|$)", re.IGNORECASE)
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES: Final = {**{name: n for n, name in enumerate(_WEEKDAYS)}, **{name: n for n, name in enumerate(_MONTHS, 1)}}
_SIZES: Final = {"second": 59, "minute": 59, "hour": 23, "day of the month": 31, "month": 12, "day of the week": 7}
_WITHOUT_SECONDS: Final = tuple(_SIZES)[1:]
_ALLOWED: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of the month": "1 to 31, L (the last day) or, alone in its field, 15W (the weekday nearest to the 15th)",
    "month": "1 to 12, or jan to dec",
    "day of the week": "0 to 7 (Sunday is 0 and 7), sun to sat, 5#2 (the second Friday) or L5 (the last one)",
}
_HOUR: Final = -4
_DAY: Final = -3
_LONG_AGO: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - wall-clock time
_WEEKDAY: Final = -1
# A field that begins with these restricts nothing, or only the other day field: the rule of Vixie's cron and cronie.
_STARS: Final = ("*", "?")
_EVERY_WEEKDAY: Final = 0b1111111

# croniter raises ValueError, and other errors for some expressions.
_REFUSED: Final = (ValueError, TypeError, KeyError)

_Expanded = Sequence[int | str]


# An expression shared by a million schedules is stored once.
@lru_cache(maxsize=16_384)
def parse_fields(expression: str, *, seconds: bool, both: bool, hash_id: str) -> Fields:
    """Parse an expression into the fields that it selects.

    Args:
        expression: five fields, or six if `seconds`, with seconds first; or one of `ALIASES`.
        both: a day must match both the day-of-month and the day-of-week field; cron accepts either.
        hash_id: the text that `H` is derived from.

    Raises:
        InvalidOption: it cannot be parsed, uses an unsupported feature, or selects no instant.
    """
    parts = _parts(expression, seconds=seconds)
    fields = _compile(expression, parts, both=both, hash_id=hash_id)
    if fields.first_from(_LONG_AGO) is None:
        raise InvalidOption(f"cron {expression!r} is never due: no month has such a day")
    return fields


def is_hashed(expression: str) -> bool:
    """Return whether the expression has an `H`, a number derived from the schedule's name."""
    return any(_HASHED.search(part) for part in expression.split())


def follows_real_time(expression: str, *, seconds: bool) -> bool:
    """Return whether its hours are "all" or a step, so that it ignores clock changes."""
    hour = _parts(expression, seconds=seconds)[_HOUR]
    return "*" in hour or "/" in hour or hour in ("0-23", "00-23")


def _parts(expression: str, *, seconds: bool) -> list[str]:
    alias = ALIASES.get(expression.strip().lower())
    if alias is not None:
        return f"0 {alias}".split() if seconds else alias.split()
    parts = expression.split()
    if expression.strip().startswith("@"):
        raise InvalidOption(f"cron {expression!r} is unknown: use one of {', '.join(ALIASES)}")
    if len(parts) == 6 and not seconds:
        raise InvalidOption(
            f"cron {expression!r} has six fields: pass seconds=True if the first is seconds, or omit one"
        )
    names = tuple(_SIZES) if seconds else _WITHOUT_SECONDS
    if len(parts) != len(names):
        raise InvalidOption(
            f"cron {expression!r} has {len(parts)} fields, not {len(names)}: {', '.join(names)}, separated by spaces"
        )
    for name, part in zip(names, parts, strict=True):
        _check(expression, name, part)
    # croniter reads a range of one value as the whole field.
    parts = [_ONE_VALUE.sub(_first_value, part) for part in parts]
    parts[_WEEKDAY] = _SUNDAY_TO_SUNDAY.sub(r"\g<1>0", parts[_WEEKDAY])
    if parts[_DAY].lower() == "h":
        # A day that only some months have would exclude the other months.
        parts[_DAY] = "H(1-28)"
    return parts


def _check(expression: str, name: str, part: str) -> None:
    if _RANDOM.search(part):
        raise InvalidOption(f"cron {expression!r}: {part!r} is random and would differ between beats; use H")
    steps = [int(step) for step in _STEP.findall(part)]
    if any(not 0 < step <= _SIZES[name] for step in steps):
        raise InvalidOption(f"cron {expression!r}: the {name} {part!r} must have a step from 1 to {_SIZES[name]}")
    if _SPELT_OTHERWISE.search(part):
        raise InvalidOption(f"cron {expression!r}: write L5 (the last Friday) or 31W instead of {part!r}")
    if "#" in part and not all("#" in each or each.lower().startswith("l") for each in part.split(",")):
        raise InvalidOption(f"cron {expression!r}: {part!r} mixes weekdays with and without a number")


def _first_value(found: "re.Match[str]") -> str:
    before, first, last, _step = found.groups()
    values = _parse_value(first), _parse_value(last)
    return f"{before}{first}" if values[0] == values[1] else found.group()


def _parse_value(written: str) -> int | str:
    """Return the number, or the day of the week or month that a name stands for; no field has both."""
    return int(written) if written.isdecimal() else _NAMES.get(written.lower(), written)


def _compile(expression: str, parts: list[str], *, both: bool, hash_id: str) -> Fields:
    try:
        found = _read(parts, hash_id)
    except _REFUSED as error:
        reason = [*_faults(parts, hash_id), error][0]
        raise InvalidOption(f"cron {expression!r} is invalid: {reason}") from error
    minutes, hours, days, months, weekdays, *second = found.expanded
    fields = Fields(
        seconds=_bits(second[0], EVERY_MINUTE) if second else 1,
        minutes=_bits(minutes, EVERY_MINUTE),
        hours=_bits(hours, EVERY_HOUR),
        days=_bits(days, EVERY_DAY),
        months=_bits(months, EVERY_MONTH),
        weekdays=_weekdays(weekdays),
        last_day="l" in days,
        nearest=tuple(sorted(found.nearest_weekday or ())),
        nth=tuple(sorted(_nth(found.nth_weekday_of_month))),
        either=not both and not parts[_DAY].startswith(_STARS) and not parts[_WEEKDAY].startswith(_STARS),
    )
    if fields.either and (fields.days == EVERY_DAY or (fields.weekdays == _EVERY_WEEKDAY and not fields.nth)):
        # Every day matches one of them.
        return replace(
            fields, days=EVERY_DAY, weekdays=_EVERY_WEEKDAY, last_day=False, nearest=(), nth=(), either=False
        )
    return fields


def _read(parts: Sequence[str], hash_id: str) -> "croniter":
    # Imported late, since apps without cron do not need it.
    from croniter import croniter

    return croniter(" ".join(parts), start_time=0.0, hash_id=hash_id.encode(), second_at_beginning=len(parts) == 6)


def _faults(parts: Sequence[str], hash_id: str) -> Iterator[str]:
    """Name each invalid value, its field, and what the field accepts."""
    for index, (part, name) in enumerate(zip(parts, tuple(_SIZES)[-len(parts) :], strict=True)):
        for value in dict.fromkeys([*part.split(","), part]):
            try:
                _read([value if at == index else "*" for at in range(len(parts))], hash_id)
            except _REFUSED:
                yield f"bad {name} {value!r}: use {_ALLOWED[name]}"


def _bits(values: _Expanded, every: int) -> int:
    return every if "*" in values else sum({1 << value for value in values if isinstance(value, int)})


def _weekdays(values: _Expanded) -> int:
    # croniter counts from Sunday, Python from Monday.
    return _EVERY_WEEKDAY if "*" in values else sum({1 << (int(value) - 1) % 7 for value in values})


def _nth(found: Mapping[Any, Iterable[Any]]) -> Iterable[tuple[int, int]]:
    for weekday, numbers in found.items():
        for number in numbers:
            yield (int(weekday) - 1) % 7, number if isinstance(number, int) else LAST
