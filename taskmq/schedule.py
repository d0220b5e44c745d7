"""Triggers of schedules, for `app.schedules.add` and reactions: `cron`, `every`, `once`.

The names are those of `taskmq.schedules.triggers`, and load on first use, as there.
"""

from typing import TYPE_CHECKING

from taskmq.schedules import triggers

if TYPE_CHECKING:
    from taskmq.schedules.triggers import (
        Cron,
        DaysOff,
        DstFold,
        DstGap,
        Every,
        Limited,
        Limits,
        Once,
        Trigger,
        cron,
        every,
        for_schedule,
        instants_after,
        jitter_of,
        once,
    )

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
    "cron",
    "every",
    "for_schedule",
    "instants_after",
    "jitter_of",
    "once",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(triggers, name)
