"""Durations as people write them: a `timedelta`, seconds, or text such as "1h30m"."""

import re
from datetime import timedelta

from taskmq.errors import InvalidOption

__all__ = ["Duration", "parse_duration", "to_ms"]

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

Duration = timedelta | float | int | str


def parse_duration(value: Duration, *, what: str = "duration") -> timedelta:
    """A duration as a `timedelta`, never negative.

    Args:
        value: a `timedelta`, a number of seconds, or text: "250ms", "30s", "1h30m", "2d", "1w".
        what: the name of the option, for the error.

    Raises:
        InvalidOption: it is none of these, or negative.
    """
    result: timedelta | None = None
    if isinstance(value, timedelta):
        result = value
    elif isinstance(value, str):
        result = _from_text(value)
    elif not isinstance(value, bool):
        try:
            result = timedelta(seconds=value)
        except (TypeError, OverflowError, ValueError):
            result = None
    if result is None or result < timedelta(0):
        raise InvalidOption(
            f"{what}={value!r} is no duration: use a timedelta, seconds >= 0, or text such as '30s' or '1h30m'"
        )
    return result


def to_ms(value: timedelta) -> int:
    """Whole milliseconds, rounded up: a delay is never shortened."""
    whole, rest = divmod(value, timedelta(milliseconds=1))
    return whole + bool(rest)


def _from_text(text: str) -> timedelta | None:
    stripped = text.strip().lower()
    parts = _PART.findall(stripped.replace(" ", ""))
    if not parts or "".join(number + unit for number, unit in parts) != stripped.replace(" ", ""):
        return None
    try:
        return timedelta(milliseconds=sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
    except OverflowError:
        return None
