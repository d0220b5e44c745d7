"""Options of the decorators that define a schedule above its task."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from taskmq.model.units import Duration
from taskmq.schedules.policy import ScheduleOptions
from taskmq.schedules.triggers import DstFold, DstGap, Limits


class _Recurring(Limits, ScheduleOptions, total=False):
    pass


class EveryOptions(_Recurring, total=False):
    """Options of `app.every`, including those of `Limits` and `ScheduleOptions`.

    Attributes:
        phase: offset from each multiple of the period; less than the period.
        anchor: instead of a phase, an instant that is one of the occurrences.
    """

    phase: Duration
    anchor: datetime


class CronOptions(_Recurring, total=False):
    """Options of `app.cron`, including those of `Limits` and `ScheduleOptions`.

    Attributes:
        tz: time zone of the expression; default UTC.
        seconds: the expression has six fields, the first for seconds.
        dst_gap: what happens to a time skipped when clocks go forward: it is due at the first instant after the gap
            (`run_after`, the default), or not at all (`skip`).
        dst_fold: which occurrence of a time repeated when clocks go back is due: `first` (default), `second`, or
            `both`.
        both_days: a day must match both the day-of-month and the day-of-week field; cron requires only one.
    """

    tz: str
    seconds: bool
    dst_gap: DstGap
    dst_fold: DstFold
    both_days: bool


def split_options(options: Mapping[str, Any], own: type) -> tuple[dict[str, Any], ScheduleOptions]:
    """Split options into those of a trigger, which `own` adds to the policy's, and those of the policy."""
    of_policy = ScheduleOptions.__annotations__
    of_trigger = own.__annotations__.keys() - of_policy.keys()
    # The policy rejects unknown options.
    policy = {name: value for name, value in options.items() if name not in of_trigger}
    return {name: options[name] for name in options if name in of_trigger}, cast("ScheduleOptions", policy)
