"""What makes a schedule due, and the options that all rules share.

An app loads this module and no other of the package, unless it has schedules.
"""

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from taskmq.schedules.triggers.days_off import DaysOff

__all__ = ["DstFold", "DstGap", "Limits", "Trigger", "most_recent"]


class Trigger(Protocol):
    """A rule that yields nominal instants, in whole milliseconds since the epoch.

    A trigger is a frozen value: equal ones yield equal instants, on every host, whenever they are asked. It reads no
    clock, so what it answers follows from its argument alone, and from the time zone data of the host.
    """

    def next_after(self, instant: int, /) -> int | None:
        """The first nominal instant strictly after `instant`; None when there is none any more."""
        ...

    def describe(self) -> str:
        """The rule in plain English, such as "every 30 seconds"."""
        ...


DstGap = Literal["run_after", "skip"]
"""What becomes of a time that does not exist: it is due at the first instant that does, or not at all."""

DstFold = Literal["first", "second", "both"]
"""Which one is due of a time that comes twice."""


class Limits(TypedDict, total=False):
    """What every recurring trigger can be given."""

    start: datetime
    """The earliest instant there may be."""
    end: datetime
    """The latest."""
    max_runs: int
    """Only so many instants, counted from `start`, whether or not a beat was there to emit them."""
    exclude: "Iterable[str | date | DaysOff]"
    """Days without any: "sat", "12-25", "2026-04-03", dates, calendars; by the trigger's zone."""


def most_recent(trigger: Trigger, instant: int, now: int) -> int:
    """The last nominal instant up to `now`; `instant` is one of them."""
    # A step back that doubles, because a trigger knows the way forward only.
    back = 1
    while (found := trigger.next_after(max(now - back, instant - 1))) is None or found > now:
        back *= 2
    while (later := trigger.next_after(found)) is not None and later <= now:
        found = later
    return found
