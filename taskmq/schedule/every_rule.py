"""A rule that counts elapsed time."""

from dataclasses import dataclass

from taskmq.duration import Duration, parse_duration, to_ms
from taskmq.errors import InvalidOption

__all__ = ["Every"]


@dataclass(frozen=True, slots=True)
class Every:
    """Every `period` milliseconds since the epoch, UTC, shifted by `phase`: all replicas agree without talking.

    Elapsed time knows no zones: "1d" is 24 hours, also on the day when the clocks change.
    """

    period: int
    phase: int = 0

    @classmethod
    def parse(cls, period: Duration, *, phase: Duration = 0) -> "Every":
        """From durations as people write them.

        Args:
            period: at least 100 ms.
            phase: how long after each multiple of the period; less than the period.

        Raises:
            InvalidOption: a duration is none, the period is too short, or the phase is not within it.
        """
        milliseconds = to_ms(parse_duration(period, what="every"))
        if milliseconds < 100:
            raise InvalidOption(f"every={period!r}: at least 100 ms")
        shift = to_ms(parse_duration(phase, what="phase"))
        if shift >= milliseconds:
            raise InvalidOption(f"phase={phase!r}: less than the period, {period!r}")
        return cls(milliseconds, shift)

    def next_after(self, instant: int, /) -> int:
        """The first multiple of the period, shifted by the phase, that is later than `instant`."""
        return ((instant - self.phase) // self.period + 1) * self.period + self.phase

    def describe(self) -> str:
        """Such as "every 30 seconds", or "every hour, 5 minutes after the full one"."""
        from taskmq.schedule.words import every_in_words

        return every_in_words(self.period, self.phase)
