"""Instants, durations, sizes and numbers of processes: parsing and formatting. Pure."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec

from taskmq.errors import InvalidOption

Duration = timedelta | float | int | str
"""A `timedelta`, a number of seconds, or text such as "1h30m"."""

Size = int | str
"""A size: bytes, or a number with a unit of 1024: K, M, G or T, also as KB or KiB."""

DAY_MS: Final = 86_400_000

LAST_INSTANT: Final = 253_402_300_799_999
"""The last instant that brokers, stores and datetime can represent: the end of 9999, in ms since the epoch."""

InstantMs = Annotated[int, msgspec.Meta(ge=0, le=LAST_INSTANT)]
"""An instant of a message, in ms since the epoch."""

_FIRST_INSTANT: Final = -62_135_596_800_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_PLAIN_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 604_800_000}
_SIZE_FORM: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_SIZE_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


def parse_duration(value: Duration, *, what: str = "duration") -> timedelta:
    """Return a duration as a `timedelta`, never negative.

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
        if isinstance(value, str) and _PLAIN_NUMBER.fullmatch(value):
            raise InvalidOption(f"{what}={value!r} has no unit: for seconds write '{value}s'")
        raise InvalidOption(
            f"{what}={value!r} is not a duration: use a timedelta, seconds >= 0, or text such as '30s' or '1h30m'"
        )
    return result


def parse_seconds(value: Duration, *, what: str) -> float:
    """Return a duration in seconds; raises as `parse_duration` does."""
    return parse_duration(value, what=what).total_seconds()


def seconds_in(text: str) -> float | None:
    """Return the seconds of a setting such as "5", "2.5" or "1m30s"; None if it is no number and no duration."""
    if _PLAIN_NUMBER.fullmatch(text):
        return float(text)
    found = _from_text(text)
    return None if found is None else found.total_seconds()


def to_datetime(milliseconds: int) -> datetime:
    """Return an instant (ms since the epoch) in UTC; one out of range yields the first or last possible datetime."""
    return _EPOCH + timedelta(milliseconds=min(max(milliseconds, _FIRST_INSTANT), LAST_INSTANT))


def instant_ms(moment: datetime, *, what: str) -> int:
    """Convert to milliseconds since the epoch, limited to the range of an envelope.

    Raises:
        InvalidOption: the datetime has no time zone.
    """
    if moment.tzinfo is None:
        raise InvalidOption(f"{what}={moment!r}: give a datetime with a time zone, for example datetime.now(UTC)")
    return min(max(round(moment.timestamp() * 1000), 0), LAST_INSTANT)


def instant_text(milliseconds: int) -> str:
    """Format an instant (milliseconds since the epoch) in ISO 8601 and UTC, such as 2026-11-29T04:43:20.125Z."""
    return f"{to_datetime(milliseconds).isoformat(timespec='milliseconds')[:-6]}Z"


def milliseconds_in(text: str) -> int | None:
    """Parse the output of `instant_text`; None for any other text."""
    if _INSTANT.fullmatch(text) is None:
        return None
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return None


def to_ms(value: timedelta) -> int:
    """Return whole milliseconds, rounded up, so that a delay is never shortened."""
    whole, rest = divmod(value, timedelta(milliseconds=1))
    return whole + bool(rest)


def duration_text(seconds: float) -> str:
    """Format a duration for people with its two largest units, such as "2h 5m"."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def count_text(number: float, noun: str) -> str:
    """Format a number of things for people, such as "1 job" and "2 jobs"."""
    return f"{number:.12g} {noun}{'' if number == 1 else 's'}"


def _from_text(text: str) -> timedelta | None:
    stripped = text.strip().lower()
    parts = _DURATION_PART.findall(stripped.replace(" ", ""))
    if not parts or "".join(number + unit for number, unit in parts) != stripped.replace(" ", ""):
        return None
    try:
        return timedelta(milliseconds=sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
    except OverflowError:
        return None


def parse_size(value: object, *, what: str) -> int:
    """Return a number of bytes, at least 1.

    Raises:
        InvalidOption: the value is not a size; the message names `what`.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := _SIZE_FORM.fullmatch(value)) is not None:
        unit: int = 1024 ** _SIZE_POWERS.get((match[2] or "").upper(), 0)
        size = round(float(match[1]) * unit)
        if size > 0:
            return size
    raise InvalidOption(f"{what}={value!r}: must be a number of bytes above 0, or text such as '512M' or '1.5G'")


def size_text(size: int) -> str:
    """Format a size in the largest unit that yields a number of at least 1, such as "1.5G"."""
    for unit, power in reversed(_SIZE_POWERS.items()):
        if size >= 1024**power:
            return f"{size / 1024**power:.4g}{unit}"
    return f"{size}B"


def parse_processes(text: str) -> tuple[int, int | None]:
    """Return the minimum and maximum in `text`, such as `4` or `1-8`; the maximum is None for a single number.

    Raises:
        InvalidOption: it is neither, or less than 1, or the minimum exceeds the maximum.
    """
    least, dash, most = text.strip().partition("-")
    if least.isdecimal() and (most.isdecimal() if dash else True):
        low, high = int(least), int(most) if dash else None
        if low >= 1 and (high is None or high >= low):
            return low, high
    raise InvalidOption(f"processes={text!r}: must be a number from 1, or a range such as '1-8'")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: a similar known name, or all known names."""
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def storable(text: str) -> str:
    """Escape NUL and lone surrogates, as in file names, which databases and UTF-8 cannot represent."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
