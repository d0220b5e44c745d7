"""The words in which the options of rules are given."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from taskmq.schedule.days_off import DaysOff

__all__ = ["DstFold", "DstGap", "Limits"]

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
