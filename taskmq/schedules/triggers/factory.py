"""Constructors of triggers from the values that users write."""

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


def every(
    period: Duration, *, phase: Duration = 0, anchor: datetime | None = None, **limits: Unpack[Limits]
) -> Trigger:
    """Return a trigger due every `period` of elapsed time, counted from the epoch, so that all replicas agree.

    Args:
        period: at least 100 ms; with the phase no later than the year 9999 after 1970.
        phase: offset from each multiple of the period.
        anchor: instead of `phase`, an instant that is one of the occurrences; past or future.

    Raises:
        InvalidOption: a value is invalid, or the limits leave nothing.
    """
    rule = Every.parse(period, phase=phase)
    if anchor is not None:
        if rule.phase:
            raise InvalidOption("every: pass phase= or anchor=, not both")
        rule = replace(rule, phase=instant_of(anchor, what="anchor") % rule.period).check(period)
    return _apply_limits(rule, limits)


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
    """Return a trigger due whenever the clocks of `tz` match the expression; see `Cron`.

    Raises:
        InvalidOption: a value is invalid, the expression is never due, or the limits leave nothing.
    """
    rule = Cron(expression, tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold, both_days=both_days)
    return _apply_limits(rule, limits)


def once(when: datetime) -> Trigger:
    """Return a trigger due once, at that instant.

    Raises:
        InvalidOption: the datetime has no zone.
    """
    return Once.parse(when)


def for_schedule(trigger: Trigger, name: str) -> Trigger:
    """Return the trigger for the schedule with this name, from which `H` in a cron expression is derived."""
    if isinstance(trigger, Cron):
        return trigger.with_hash_id(name)
    if isinstance(trigger, Limited) and isinstance(inner := trigger.trigger, Cron):
        return replace(trigger, trigger=inner.with_hash_id(name))
    return trigger


def instants_after(trigger: Trigger, instant: int) -> Iterator[int]:
    """Yield the nominal instants after `instant`, up to the year 9999."""
    following = trigger.next_after(instant)
    while following is not None and following <= LAST_INSTANT:
        yield following
        following = trigger.next_after(following)


def _apply_limits(trigger: Trigger, limits: Limits) -> Trigger:
    if unknown := sorted(limits.keys() - Limits.__annotations__.keys()):
        raise InvalidOption(
            f"{unknown[0]}= is not an option of a trigger; options: {', '.join(sorted(Limits.__annotations__))}"
        )
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
