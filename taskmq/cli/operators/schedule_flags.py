"""Options of `schedule add` and `schedule change`: the rule and the policy of a schedule."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from taskmq.api.schedules import ScheduleFields
from taskmq.cli.typed_values import instant_of
from taskmq.schedules.policy import Catchup, OnResume, Overlap
from taskmq.schedules.triggers import DstFold, DstGap

__all__ = ["ScheduleFlags"]

_NAMES = {"expression": "cron", "period": "every"}
_INSTANTS = ("at", "anchor", "start", "end")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScheduleFlags:
    """Rule and policy of a schedule as flags; `fields` makes them fields of a request's body."""

    expression: Annotated[str | None, Parameter(name="--cron", help="When to run: a cron expression in quotes.")] = (
        None
    )
    tz: Annotated[str | None, Parameter(help="Time zone of the expression; UTC if none is given.")] = None
    period: Annotated[str | None, Parameter(name="--every", help="Or an interval, such as 30s.")] = None
    at: Annotated[str | None, Parameter(help="Or a single instant, such as 2027-01-31T09:00+01:00.")] = None
    seconds: Annotated[bool | None, Parameter(help="The expression has six fields, the first for seconds.")] = None
    dst_gap: Annotated[DstGap | None, Parameter(help="Times that the clocks skip: run after the gap, or not.")] = None
    dst_fold: Annotated[DstFold | None, Parameter(help="Which of two equal times to run when clocks go back.")] = None
    both_days: Annotated[
        bool | None, Parameter(help="A day must match both the day-of-month and the day-of-week field.")
    ] = None
    phase: Annotated[str | None, Parameter(help="Offset from each multiple of the interval.")] = None
    anchor: Annotated[str | None, Parameter(help="Or an instant that is one of the occurrences.")] = None
    start: Annotated[str | None, Parameter(help="First possible occurrence.")] = None
    end: Annotated[str | None, Parameter(help="Last possible occurrence.")] = None
    max_runs: Annotated[int | None, Parameter(help="Maximum number of occurrences, counted from --start.")] = None
    exclude: Annotated[
        tuple[str, ...],
        Parameter(help="Day without occurrences: sat, 12-25 or 2026-04-03.", negative=""),
    ] = ()
    catchup: Annotated[Catchup | None, Parameter(help="What to do with occurrences that were missed.")] = None
    late_after: Annotated[str | None, Parameter(help="Age from which an occurrence counts as missed.")] = None
    catchup_window: Annotated[str | None, Parameter(help="Maximum age of missed occurrences to catch up.")] = None
    catchup_limit: Annotated[int | None, Parameter(help="Maximum number of missed occurrences to run.")] = None
    catchup_rate: Annotated[int | None, Parameter(help="Maximum number of missed occurrences a second.")] = None
    overlap: Annotated[Overlap | None, Parameter(help="What to do with an occurrence while earlier ones run.")] = None
    max_concurrency: Annotated[
        int | None, Parameter(help="Maximum number of running occurrences, if overlap limits them.")
    ] = None
    on_resume: Annotated[OnResume | None, Parameter(help="What to do with occurrences missed while paused.")] = None
    jitter: Annotated[
        str | None,
        Parameter(help="Delay each occurrence by up to this time, such as 5m; derived from the schedule's name."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a body, as in `ScheduleFields`.

        Raises:
            InvalidOption: an instant is malformed; the message names the flag.
        """
        flags = {_NAMES.get(name, name): value for name, value in vars(self).items()}
        instants = {name: instant_of(f"--{name}", flags[name]) for name in _INSTANTS if flags[name] is not None}
        given = {**flags, **instants, "exclude": [*self.exclude] or None}
        return {name: given[name] for name in ScheduleFields.__struct_fields__ if name in given}
