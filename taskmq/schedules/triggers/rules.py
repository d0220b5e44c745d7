"""Triggers by elapsed time, for a single instant, and within limits; and jitter."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from hashlib import blake2b
from typing import Final

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT, Duration, parse_duration, to_ms
from taskmq.schedules.triggers.days_off import DaysOff
from taskmq.schedules.triggers.trigger import Trigger
from taskmq.schedules.triggers.zones import first_instant_of, instant_in_words, instant_of, wall_clock

_DAY: Final = timedelta(days=1)
_MOST_RUNS: Final = 10_000
# The rarest rule: 29 February falls on each weekday within 40 years.
_PATIENCE: Final = 45 * 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Every:
    """Due every `period` milliseconds since the epoch, UTC, shifted by `phase`; all replicas agree.

    Elapsed time ignores zones: "1d" is 24 hours, even on the day when clocks change.
    """

    period: int
    phase: int = 0

    @classmethod
    def parse(cls, period: Duration, *, phase: Duration = 0) -> "Every":
        """Build from durations as people write them.

        Args:
            period: at least 100 ms.
            phase: offset from each multiple of the period; less than the period.

        Raises:
            InvalidOption: a duration is invalid, the period is too short or ends after the year 9999, or the phase
                exceeds it.
        """
        milliseconds = to_ms(parse_duration(period, what="every"))
        if milliseconds < 100:
            raise InvalidOption(f"every={period!r}: must be at least 100 ms")
        shift = to_ms(parse_duration(phase, what="phase"))
        if shift >= milliseconds:
            raise InvalidOption(f"phase={phase!r}: must be less than the period, {period!r}")
        return cls(milliseconds, shift).check(period)

    def check(self, period: Duration) -> "Every":
        """Return the rule itself if it is due a second time before the year 10000.

        Raises:
            InvalidOption: it is not; the message names the period as given.
        """
        if self.period + self.phase > LAST_INSTANT:
            raise InvalidOption(f"every={period!r}: would be due only after the year 9999; choose a shorter period")
        return self

    def next_after(self, instant: int, /) -> int | None:
        """Return the first multiple of the period, shifted by the phase, that is later than `instant`.

        None only after the year 9999.
        """
        following = ((instant - self.phase) // self.period + 1) * self.period + self.phase
        return following if following <= LAST_INSTANT else None

    def describe(self) -> str:
        """Describe the rule, such as "every 30 seconds", or "every hour, 5 minutes after the full one"."""
        from taskmq.schedules.triggers.words import every_in_words

        return every_in_words(self.period, self.phase)


@dataclass(frozen=True, slots=True)
class Once:
    """Due at `instant`, in milliseconds since the epoch, and never again."""

    instant: int

    @classmethod
    def parse(cls, when: datetime) -> "Once":
        """Build from a datetime with a zone.

        Raises:
            InvalidOption: it has no zone.
        """
        return cls(instant_of(when, what="once"))

    def next_after(self, instant: int, /) -> int | None:
        """Return the instant if it is later than `instant`."""
        return self.instant if instant < self.instant else None

    def describe(self) -> str:
        """Describe the rule, such as "once, at 2027-01-31 09:00 UTC"."""
        return f"once, at {instant_in_words(self.instant)}"


@dataclass(frozen=True, slots=True)
class Limited:
    """Instants of `trigger` within limits; the others do not count as instants.

    Args:
        start: the earliest instant, in milliseconds since the epoch.
        end: the latest instant.
        max_runs: maximum number, counted from `start` whether or not they ran, so that all replicas agree.
        days_off: days without instants, in the zone of `trigger`, else in UTC.

    Raises:
        InvalidOption: the limits leave nothing, or `max_runs` has no start or exceeds 10,000.
    """

    trigger: Trigger
    start: int | None = None
    end: int | None = None
    max_runs: int | None = None
    days_off: DaysOff | None = None
    zone: tzinfo = field(init=False, repr=False, compare=False)
    last: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "zone", getattr(self.trigger, "zone", UTC))
        object.__setattr__(self, "last", self.end)
        start = 0 if self.start is None else self.start
        first = self.next_after(start - 1)
        if first is None:
            raise InvalidOption(f"a schedule that is due {self.describe()} is never due")
        if self.max_runs is not None:
            object.__setattr__(self, "last", self._instant_of_run(self.max_runs, first))

    def next_after(self, instant: int, /) -> int | None:
        """Return the trigger's first instant after `instant` within the limits; None if there is none."""
        if self.start is not None and instant < self.start:
            instant = self.start - 1
        latest = instant + _PATIENCE if self.last is None else min(self.last, instant + _PATIENCE)
        found = self.trigger.next_after(instant)
        while found is not None and found <= latest:
            following = self._end_of_days_off(found)
            if following is None:
                return found
            found = self.trigger.next_after(following - 1)
        return None

    def describe(self) -> str:
        """Describe the trigger and its limits."""
        said = [self.trigger.describe()]
        if self.start is not None:
            said.append(f"from {instant_in_words(self.start)}")
        if self.end is not None:
            said.append(f"until {instant_in_words(self.end)}")
        if self.max_runs is not None:
            said.append("once" if self.max_runs == 1 else f"{self.max_runs} times at most")
        if self.days_off is not None:
            *others, last = self.days_off.describe()
            said.append(f"except on {', '.join(others)} and {last}" if others else f"except on {last}")
        return ", ".join(said)

    def _end_of_days_off(self, instant: int) -> int | None:
        """Return the end of the days off around `instant`, or None."""
        if self.days_off is None:
            return None
        day = wall_clock(self.zone, instant // 1000).date()
        if not self.days_off.contains(day):
            return None
        while self.days_off.contains(day):
            if day == date.max:
                return LAST_INSTANT + 1
            day += _DAY
        return first_instant_of(self.zone, datetime.combine(day, time())) * 1000

    def _instant_of_run(self, number: int, first: int) -> int | None:
        if self.start is None:
            raise InvalidOption(f"max_runs={number} needs start=, from which it counts")
        if not 1 <= number <= _MOST_RUNS:
            raise InvalidOption(f"max_runs={number}: must be from 1 to {_MOST_RUNS:,}; use end= for an end time")
        instant: int | None = first
        for _ in range(number - 1):
            assert instant is not None
            following = self.next_after(instant)
            if following is None:
                return instant
            instant = following
        return instant


def jitter_of(schedule: str, spread: int) -> int:
    """Return milliseconds from 0 to `spread` derived from the schedule's name, identical on every host.

    It delays sending, but not the nominal instant, which identifies the occurrence.
    """
    return int.from_bytes(blake2b(schedule.encode(), digest_size=8).digest()) % (spread + 1) if spread else 0
