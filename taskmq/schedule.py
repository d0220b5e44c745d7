"""When a recurring task is due. Pure: instants in, instants out."""

from dataclasses import dataclass
from typing import Protocol

from taskmq.duration import Duration, parse_duration, to_ms
from taskmq.errors import InvalidOption

__all__ = ["Every", "Trigger"]


class Trigger(Protocol):
    """A rule that yields nominal instants, in milliseconds since the epoch."""

    def next_after(self, instant: int) -> int:
        """The first nominal instant strictly after `instant`."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Every `period` milliseconds, in phase with the epoch: all replicas agree without talking."""

    period: int

    @classmethod
    def parse(cls, period: Duration) -> "Every":
        """From a duration as people write it.

        Raises:
            InvalidOption: it is no duration, or shorter than 100 ms.
        """
        milliseconds = to_ms(parse_duration(period, what="every"))
        if milliseconds < 100:
            raise InvalidOption(f"every={period!r}: at least 100 ms")
        return cls(milliseconds)

    def next_after(self, instant: int) -> int:
        return (instant // self.period + 1) * self.period
