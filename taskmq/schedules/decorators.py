"""What can be said where a schedule is defined above its task."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from taskmq.model.units import Duration
from taskmq.schedules.policy import ScheduleOptions
from taskmq.schedules.triggers import DstFold, DstGap, Limits

__all__ = ["CronOptions", "EveryOptions", "divided"]


class _Recurring(Limits, ScheduleOptions, total=False):
    pass


class EveryOptions(_Recurring, total=False):
    """Options of `app.every`; those of `Limits` and `ScheduleOptions` among them.

    Attributes:
        phase: how long after each multiple of the period; less than the period.
        anchor: an instant to be in phase with, instead.
    """

    phase: Duration
    anchor: datetime


class CronOptions(_Recurring, total=False):
    """Options of `app.cron`; those of `Limits` and `ScheduleOptions` among them.

    Attributes:
        tz: whose clocks; default UTC.
        seconds: the expression has six fields, the first for the seconds.
        dst_gap: what becomes of a time that does not exist as clocks are set forward: it is due at the first instant
            that does (`run_after`, the default), or not at all (`skip`).
        dst_fold: which one is due of a time that comes twice: `first` (default), `second`, or `both`.
        both_days: a day has to fit the field of the month and that of the week; cron asks for one of them.
    """

    tz: str
    seconds: bool
    dst_gap: DstGap
    dst_fold: DstFold
    both_days: bool


def divided(options: Mapping[str, Any], own: type) -> tuple[dict[str, Any], ScheduleOptions]:
    """The options of a trigger, which are those that `own` adds to the policy's, and the policy's."""
    of_policy = ScheduleOptions.__annotations__
    of_trigger = own.__annotations__.keys() - of_policy.keys()
    # An unknown option is left to the policy, which refuses it.
    policy = {name: value for name, value in options.items() if name not in of_trigger}
    return {name: options[name] for name in options if name in of_trigger}, cast("ScheduleOptions", policy)
