"""Time zones: conversion of wall-clock times to instants, including skipped and repeated ones."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, cast
from zoneinfo import ZoneInfo, available_timezones

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules.triggers.fields import Fields
from taskmq.schedules.triggers.trigger import DstFold, DstGap

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
# A day away from both ends of the calendar, which no zone offset can cross.
_LEAST: Final = -62_135_510_400
_MOST: Final = 253_402_128_000


def find_zone(name: str) -> tzinfo:
    """Return the zone with this name from the host's time zone data.

    Raises:
        InvalidOption: no zone has this name; the message suggests similar names.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        import difflib

        known = available_timezones()
        near = difflib.get_close_matches(name, known, 3) if known else []
        remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else "names look like 'Europe/Paris'"
        if not known:
            remedy = "this host has no time zone data: install the package tzdata"
        raise InvalidOption(f"tz={name!r} is not a time zone: {remedy}") from error


def wall_clock(zone: tzinfo, seconds: int) -> datetime:
    """Return the naive wall-clock time in the zone at an instant; keeps `fold`."""
    return datetime.fromtimestamp(seconds, zone).replace(tzinfo=None)


def next_instant(fields: Fields, zone: tzinfo, after: int, *, gap: DstGap, fold: DstFold) -> int | None:
    """Return the first selected instant strictly after `after`, both in seconds since the epoch.

    Args:
        gap: whether a skipped time is due at the first instant after the gap (`run_after`), or never.
        fold: whether the first, the second, or both occurrences of a repeated time are due.
    """
    if after > _MOST:
        return None
    after = max(after, _LEAST)
    if zone is UTC:
        shown = fields.first_from(wall_clock(UTC, after) + _SECOND)
        return None if shown is None else _seconds(shown)
    here = datetime.fromtimestamp(after, zone)
    wall = here.replace(tzinfo=None)
    if fold == "first":
        return _walk(fields, zone, wall, after, gap=gap, take_second=False)
    # On the second pass, clocks repeat what they have shown since they were set back.
    other = wall if here.fold else wall - _repetition(zone, wall)
    if fold == "second":
        return _walk(fields, zone, other, after, gap=gap, take_second=True)
    found = _walk(fields, zone, wall, after, gap=gap, take_second=False)
    if not here.fold and other == wall:
        # Nothing is repeated at present, and no earlier time can come again.
        return found
    again = _walk(fields, zone, other, after, gap=gap, take_second=True)
    return again if found is None else found if again is None else min(found, again)


def first_instant_of(zone: tzinfo, wall: datetime) -> int:
    """Return the first instant, in seconds, at which clocks in the zone show `wall` or, if skipped, more."""
    before, then = _offsets(zone, wall)
    if before >= then:
        return _seconds(wall) - before
    return _transition(zone, _seconds(wall) - then, _seconds(wall) - before)


def _walk(fields: Fields, zone: tzinfo, wall: datetime, after: int, *, gap: DstGap, take_second: bool) -> int | None:
    """Return the first instant after `after` of the selected times later than `wall`, one for each at most."""
    found = fields.first_from(wall.replace(fold=0) + _SECOND)
    while found is not None:
        before, then = _offsets(zone, found)
        instant: int | None = None
        if before >= then:
            instant = _seconds(found) - (then if take_second else before)
        elif gap == "run_after":
            instant = _transition(zone, _seconds(found) - then, _seconds(found) - before)
        if instant is not None and instant > after:
            return instant
        found = fields.first_from(found + _SECOND)
    return None


def _repetition(zone: tzinfo, wall: datetime) -> timedelta:
    """Return how far clocks will be set back over `wall`, shown for the first time; else zero."""
    before, then = _offsets(zone, wall)
    return timedelta(seconds=max(before - then, 0))


def _offsets(zone: tzinfo, wall: datetime) -> tuple[int, int]:
    """Return the UTC offsets in seconds before and after a change around `wall`."""
    return _offset(zone, wall), _offset(zone, wall.replace(fold=1))


def _offset(zone: tzinfo, wall: datetime) -> int:
    offset = zone.utcoffset(wall)
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def _transition(zone: tzinfo, low: int, high: int) -> int:
    """Return the instant in (low, high] at which the zone's clocks go forward."""
    start = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == start:
            low = middle
        else:
            high = middle
    return high


def _seconds(wall: datetime) -> int:
    since = wall - _EPOCH
    return since.days * 86_400 + since.seconds


def instant_of(when: datetime, *, what: str) -> int:
    """Return milliseconds since the epoch.

    Raises:
        InvalidOption: it is not a datetime, has no zone, or is after the year 9999 UTC; the message names `what`.
    """
    # Options come from callers without type checking, too.
    if not isinstance(cast("object", when), datetime) or when.utcoffset() is None:
        raise InvalidOption(
            f"{what}={when!r}: must be a datetime with a zone, such as datetime(2027, 1, 31, 9, tzinfo=UTC)"
        )
    instant = (when - _EPOCH_UTC) // _MILLISECOND
    if instant > LAST_INSTANT:
        raise InvalidOption(f"{what}={when!r}: is after the year 9999, UTC")
    return instant


def instant_in_words(instant: int) -> str:
    """Format an instant, such as "2027-01-31 09:00 UTC", with seconds and fractions only if there are any."""
    when = _EPOCH_UTC + timedelta(milliseconds=instant)
    precision = "milliseconds" if instant % 1000 else "seconds" if instant % 60_000 else "minutes"
    return f"{when.replace(tzinfo=None).isoformat(' ', precision)} UTC"
