"""Facts of a schedule as clients read and change them: its rule, policy and arguments."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.envelope import JSON
from taskmq.model.units import Duration, to_datetime
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.triggers import Cron, Every, Limited, Once, Trigger, cron, every, once

__all__ = ["amend_trigger", "schedule_facts"]


def schedule_facts(entry: ScheduleEntry) -> dict[str, Any]:
    """Return the fields of `PUT /schedules/{name}` by the same names, and the limits of the rule.

    Durations are seconds, instants are text. Fields without such a form are None: the task and arguments of a
    workflow, and the rule of a custom trigger.
    """
    limits = entry.trigger if isinstance(entry.trigger, Limited) else None
    trigger = entry.trigger if limits is None else limits.trigger
    args, kwargs = _plain_arguments(entry)
    return {
        "task": entry.definition or (entry.task.name if entry.workflow is None else None),
        "cron": trigger.expression if isinstance(trigger, Cron) else None,
        "every": trigger.period / 1000 if isinstance(trigger, Every) else None,
        "at": _format_instant(trigger.instant) if isinstance(trigger, Once) else None,
        "start": None if limits is None else _format_instant(limits.start),
        "end": None if limits is None else _format_instant(limits.end),
        **entry.policy.facts(),
        "args": args,
        "kwargs": kwargs,
    }


def amend_trigger(
    present: Trigger,
    *,
    expression: str | None = None,
    tz: str | None = None,
    period: Duration | None = None,
    at: datetime | None = None,
) -> Trigger:
    """Return a schedule's rule with another time. Its limits, and a cron expression's zone and options, are kept.

    Returns the same object if no new time is given.

    Raises:
        InvalidOption: the time is invalid, or several rules are given.
    """
    if len([each for each in (expression, period, at) if each is not None]) > 1:
        raise InvalidOption("give at most one of cron, every and at")
    if isinstance(present, Limited):
        inner = amend_trigger(present.trigger, expression=expression, tz=tz, period=period, at=at)
        return present if inner is present.trigger else replace(present, trigger=inner)
    if expression is not None or tz is not None:
        if isinstance(present, Cron):
            return replace(present, expression=expression or present.expression, tz=tz or present.tz)
        if expression is None:
            raise InvalidOption("a time zone needs a cron expression: give both")
        return cron(expression, tz=tz or "UTC")
    if period is not None:
        return every(period)
    return present if at is None else once(at)


def _plain_arguments(entry: ScheduleEntry) -> tuple[list[Any] | None, dict[str, Any] | None]:
    """Return the positional and keyword arguments as plain data."""
    if entry.workflow is not None:
        return None, None
    try:
        args, kwargs = entry.task.signature.encode(entry.args, dict(entry.kwargs), JSON)
    except TaskMQError:
        return None, None
    return msgspec.json.decode(args, type=list[Any]), msgspec.json.decode(kwargs, type=dict[str, Any])


def _format_instant(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return to_datetime(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
