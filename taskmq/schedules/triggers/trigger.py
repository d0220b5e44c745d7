"""Protocol of triggers, and the options that all rules share.

An app without schedules loads only this module of the package.
"""

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from taskmq.schedules.triggers.days_off import DaysOff


class Trigger(Protocol):
    """A rule that yields nominal instants, in whole milliseconds since the epoch.

    A trigger is a frozen value: equal triggers yield equal instants, on every host and at any time. It reads no
    clock: the result depends only on the argument and the host's time zone data.
    """

    def next_after(self, instant: int, /) -> int | None:
        """Return the first nominal instant strictly after `instant`; None if there is none."""
        ...

    def describe(self) -> str:
        """Describe the rule in plain English, such as "every 30 seconds"."""
        ...


DstGap = Literal["run_after", "skip"]
"""Policy for a skipped time: due right after the gap, or not at all."""

DstFold = Literal["first", "second", "both"]
"""Policy for a repeated time: the occurrence that is due."""


class Limits(TypedDict, total=False):
    """Limits that every recurring trigger accepts."""

    start: datetime
    """The earliest instant."""
    end: datetime
    """The latest instant."""
    max_runs: int
    """Maximum number of instants, counted from `start`, whether or not a beat emitted them."""
    exclude: "Iterable[str | date | DaysOff]"
    """Days without instants: "sat", "12-25", "2026-04-03", dates, calendars; in the trigger's zone."""


def most_recent(trigger: Trigger, instant: int, now: int) -> int:
    """Return the last nominal instant up to `now`, given one of them, `instant`."""
    # Steps back double, since a trigger can only go forward.
    back = 1
    while (found := trigger.next_after(max(now - back, instant - 1))) is None or found > now:
        back *= 2
    while (later := trigger.next_after(found)) is not None and later <= now:
        found = later
    return found
