"""Instants and time zones: what wall-clock times mean where some do not exist and others come twice."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, cast
from zoneinfo import ZoneInfo, available_timezones

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules.triggers.fields import Fields
from taskmq.schedules.triggers.trigger import DstFold, DstGap

__all__ = ["find_zone", "first_instant_of", "instant_in_words", "instant_of", "next_instant", "wall_clock"]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall-clock time
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
# A day within the calendar at both of its ends: no zone carries an instant between them out of it.
_LEAST: Final = -62_135_510_400
_MOST: Final = 253_402_128_000


def find_zone(name: str) -> tzinfo:
    """The zone of that name in the host's time zone data.

    Raises:
        InvalidOption: there is none; with the names that look like it.
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
        raise InvalidOption(f"tz={name!r} is no time zone: {remedy}") from error


def wall_clock(zone: tzinfo, seconds: int) -> datetime:
    """What clocks in the zone show at that instant, without a zone; `fold` is kept."""
    return datetime.fromtimestamp(seconds, zone).replace(tzinfo=None)


def next_instant(fields: Fields, zone: tzinfo, after: int, *, gap: DstGap, fold: DstFold) -> int | None:
    """The first instant strictly after `after`, both in seconds since the epoch, that the fields select.

    Args:
        gap: a wall-clock time that does not exist is due at the first instant that does (`run_after`), or never.
        fold: of one that comes twice, the first, the second, or both are due.
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
    # Second time round, clocks will show what they show now and what they have shown since they were set back.
    other = wall if here.fold else wall - _repetition(zone, wall)
    if fold == "second":
        return _walk(fields, zone, other, after, gap=gap, take_second=True)
    found = _walk(fields, zone, wall, after, gap=gap, take_second=False)
    if not here.fold and other == wall:
        # Nothing is in its second round, and nothing from before can come again.
        return found
    again = _walk(fields, zone, other, after, gap=gap, take_second=True)
    return again if found is None else found if again is None else min(found, again)


def first_instant_of(zone: tzinfo, wall: datetime) -> int:
    """The first instant, in seconds, at which clocks in the zone show `wall` or, if they never do, more."""
    before, then = _offsets(zone, wall)
    if before >= then:
        return _seconds(wall) - before
    return _transition(zone, _seconds(wall) - then, _seconds(wall) - before)


def _walk(fields: Fields, zone: tzinfo, wall: datetime, after: int, *, gap: DstGap, take_second: bool) -> int | None:
    """The first instant after `after` of the selected times later than `wall`, each standing for one at most."""
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
    """How far clocks are going to be set back from `wall`, which they show for the first time; else nothing."""
    before, then = _offsets(zone, wall)
    return timedelta(seconds=max(before - then, 0))


def _offsets(zone: tzinfo, wall: datetime) -> tuple[int, int]:
    """The zone's offsets from UTC, in seconds, by the rules before and after a change that `wall` falls into."""
    return _offset(zone, wall), _offset(zone, wall.replace(fold=1))


def _offset(zone: tzinfo, wall: datetime) -> int:
    offset = zone.utcoffset(wall)
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def _transition(zone: tzinfo, low: int, high: int) -> int:
    """The instant in (low, high] at which the zone's clocks are set forward."""
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
    """Milliseconds since the epoch.

    Raises:
        InvalidOption: it is no datetime, has no zone, or is after the year 9999 in UTC; names the option `what`.
    """
    # Options arrive from callers whom no type checker has seen.
    if not isinstance(cast("object", when), datetime) or when.utcoffset() is None:
        raise InvalidOption(f"{what}={when!r}: a datetime with a zone, such as datetime(2027, 1, 31, 9, tzinfo=UTC)")
    instant = (when - _EPOCH_UTC) // _MILLISECOND
    if instant > LAST_INSTANT:
        raise InvalidOption(f"{what}={when!r}: it is after the year 9999, UTC")
    return instant


def instant_in_words(instant: int) -> str:
    """Such as "2027-01-31 09:00 UTC"; seconds and their parts only if there are any."""
    when = _EPOCH_UTC + timedelta(milliseconds=instant)
    precision = "milliseconds" if instant % 1000 else "seconds" if instant % 60_000 else "minutes"
    return f"{when.replace(tzinfo=None).isoformat(' ', precision)} UTC"
