"""What a trigger means, for people. Pure."""

from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import NamedTuple

from taskmq.schedules.triggers.cron_rule import Cron
from taskmq.schedules.triggers.factory import instants_after
from taskmq.schedules.triggers.rules import Limited
from taskmq.schedules.triggers.trigger import Trigger

__all__ = ["TriggerExplanation", "explain_trigger", "local_text", "zone_of"]


class TriggerExplanation(NamedTuple):
    """A trigger in words.

    Attributes:
        means: when it is due.
        clock_changes: what becomes of times that do not exist, or come twice.
        next: when it is due next, by the clocks of its zone.
    """

    means: str
    clock_changes: str
    next: list[str]


def explain_trigger(trigger: Trigger, *, after: int, count: int) -> TriggerExplanation:
    """What it means, and when it is due next.

    Args:
        after: ms.
        count: how many of the next instants.
    """
    zone = zone_of(trigger)
    following = [local_text(instant, zone) for instant in islice(instants_after(trigger, after), count)]
    return TriggerExplanation(trigger.describe(), _clock_changes(trigger), following)


def zone_of(trigger: Trigger) -> tzinfo:
    """The zone whose clocks it goes by."""
    rule = trigger.trigger if isinstance(trigger, Limited) else trigger
    return rule.zone if isinstance(rule, Cron) else UTC


def local_text(instant: int, zone: tzinfo) -> str:
    """An instant (ms) as the clocks of a zone show it."""
    return datetime.fromtimestamp(instant / 1000, zone).isoformat(" ", "seconds")


def _clock_changes(trigger: Trigger) -> str:
    rule = trigger.trigger if isinstance(trigger, Limited) else trigger
    if isinstance(rule, Cron) and rule.zone is UTC:
        return "none: the clocks of UTC are never changed"
    if not isinstance(rule, Cron) or rule.follows_real_time:
        return "goes by elapsed time"
    gap = "due right after the gap" if rule.dst_gap == "run_after" else "not due"
    fold = "both times" if rule.dst_fold == "both" else f"the {rule.dst_fold} time only"
    return f"a time that does not exist is {gap}; a time that comes twice is due {fold}"
