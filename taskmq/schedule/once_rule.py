"""A rule that is due once."""

from dataclasses import dataclass
from datetime import datetime

from taskmq.schedule.instants import instant_in_words, instant_of

__all__ = ["Once"]


@dataclass(frozen=True, slots=True)
class Once:
    """At `instant`, in milliseconds since the epoch, and never again."""

    instant: int

    @classmethod
    def parse(cls, when: datetime) -> "Once":
        """From a datetime with a zone.

        Raises:
            InvalidOption: it has none.
        """
        return cls(instant_of(when, what="once"))

    def next_after(self, instant: int, /) -> int | None:
        """The instant, as long as it is later than `instant`."""
        return self.instant if instant < self.instant else None

    def describe(self) -> str:
        """Such as "once, at 2027-01-31 09:00 UTC"."""
        return f"once, at {instant_in_words(self.instant)}"
