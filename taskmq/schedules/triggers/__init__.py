"""Triggers: rules for when a recurring task is due. Pure: instants in, instants out.

A trigger (`Every`, `Cron`, `Once`, or one of them `Limited`) is a frozen value that yields nominal instants in whole
milliseconds since the epoch, computed only from itself. So any number of beats agree on them without communication,
and the schedule and the instant identify an occurrence. Jitter moves the time of sending, never the nominal instant.

`Cron` has two halves. `cron_parser` parses an expression once into `fields`: bits for the wall-clock times it
selects. `zones` converts these to instants, including when clocks go forward or back.

The names below load on first use: an app without schedules pays for none of them, and `croniter` is imported when a
cron expression is first defined.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskmq.schedules.triggers.cron_rule import Cron
    from taskmq.schedules.triggers.days_off import DaysOff
    from taskmq.schedules.triggers.explanation import TriggerExplanation, explain_trigger, local_text, zone_of
    from taskmq.schedules.triggers.factory import cron, every, for_schedule, instants_after, once
    from taskmq.schedules.triggers.rules import Every, Limited, Once, jitter_of
    from taskmq.schedules.triggers.trigger import DstFold, DstGap, Limits, Trigger

__all__ = [
    "Cron",
    "DaysOff",
    "DstFold",
    "DstGap",
    "Every",
    "Limited",
    "Limits",
    "Once",
    "Trigger",
    "TriggerExplanation",
    "cron",
    "every",
    "explain_trigger",
    "for_schedule",
    "instants_after",
    "jitter_of",
    "local_text",
    "once",
    "zone_of",
]

_HOMES = {
    "Cron": "cron_rule",
    "DaysOff": "days_off",
    "DstFold": "trigger",
    "DstGap": "trigger",
    "Every": "rules",
    "Limited": "rules",
    "Limits": "trigger",
    "Once": "rules",
    "Trigger": "trigger",
    "TriggerExplanation": "explanation",
    "explain_trigger": "explanation",
    "jitter_of": "rules",
    "local_text": "explanation",
    "zone_of": "explanation",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'factory')}"), name)
    globals()[name] = value
    return value
