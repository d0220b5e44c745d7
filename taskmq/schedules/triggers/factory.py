"""Makes triggers from the values that users write."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Unpack

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT, Duration
from taskmq.schedules.triggers.cron_rule import Cron
from taskmq.schedules.triggers.days_off import DaysOff
from taskmq.schedules.triggers.rules import Every, Limited, Once
from taskmq.schedules.triggers.trigger import DstFold, DstGap, Limits, Trigger
from taskmq.schedules.triggers.zones import instant_of

__all__ = ["cron", "every", "for_schedule", "instants_after", "once"]


def every(
    period: Duration, *, phase: Duration = 0, anchor: datetime | None = None, **limits: Unpack[Limits]
) -> Trigger:
    """Each `period` of elapsed time, counted from the epoch, so that all replicas agree.

    Args:
        period: at least 100 ms; with the phase no later than the year 9999 after 1970.
        phase: how long after each multiple of the period.
        anchor: instead of `phase`, an instant that is one of the multiples; past or future.

    Raises:
        InvalidOption: a value that cannot be, or limits that leave nothing.
    """
    rule = Every.parse(period, phase=phase)
    if anchor is not None:
        if rule.phase:
            raise InvalidOption("every: phase= or anchor=, not both")
        rule = replace(rule, phase=instant_of(anchor, what="anchor") % rule.period).checked(period)
    return _limited(rule, limits)


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    seconds: bool = False,
    dst_gap: DstGap = "run_after",
    dst_fold: DstFold = "first",
    both_days: bool = False,
    **limits: Unpack[Limits],
) -> Trigger:
    """Whenever the clocks of `tz` show what the expression selects; see `Cron`.

    Raises:
        InvalidOption: a value that cannot be, an expression that is never due, or limits that leave nothing.
    """
    rule = Cron(expression, tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold, both_days=both_days)
    return _limited(rule, limits)


def once(when: datetime) -> Trigger:
    """At that instant, once.

    Raises:
        InvalidOption: it has no zone.
    """
    return Once.parse(when)


def for_schedule(trigger: Trigger, name: str) -> Trigger:
    """Return the trigger for the schedule of that name, from which `H` in a cron expression follows."""
    if isinstance(trigger, Cron):
        return trigger.hashed_by(name)
    if isinstance(trigger, Limited) and isinstance(inner := trigger.trigger, Cron):
        return replace(trigger, trigger=inner.hashed_by(name))
    return trigger


def instants_after(trigger: Trigger, instant: int) -> Iterator[int]:
    """The nominal instants after `instant` one by one, up to the year 9999 and as long as the caller asks."""
    following = trigger.next_after(instant)
    while following is not None and following <= LAST_INSTANT:
        yield following
        following = trigger.next_after(following)


def _limited(trigger: Trigger, limits: Limits) -> Trigger:
    if unknown := sorted(limits.keys() - Limits.__annotations__.keys()):
        raise InvalidOption(f"{unknown[0]}= is no option of a trigger: {', '.join(sorted(Limits.__annotations__))}")
    if not limits:
        return trigger
    start, end, exclude = limits.get("start"), limits.get("end"), limits.get("exclude")
    return Limited(
        trigger,
        start=None if start is None else instant_of(start, what="start"),
        end=None if end is None else instant_of(end, what="end"),
        max_runs=limits.get("max_runs"),
        days_off=None if exclude is None else DaysOff.parse(exclude),
    )
