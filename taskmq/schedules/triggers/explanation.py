"""Descriptions of triggers for people. Pure."""

from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import NamedTuple

from taskmq.schedules.triggers.cron_rule import Cron
from taskmq.schedules.triggers.factory import instants_after
from taskmq.schedules.triggers.rules import Limited
from taskmq.schedules.triggers.trigger import Trigger


class TriggerExplanation(NamedTuple):
    """A trigger in words.

    Attributes:
        means: when it is due.
        clock_changes: what happens to skipped and repeated times.
        next: the next due times, in its zone.
    """

    means: str
    clock_changes: str
    next: list[str]


def explain_trigger(trigger: Trigger, *, after: int, count: int) -> TriggerExplanation:
    """Describe a trigger and its next due times.

    Args:
        after: ms.
        count: number of instants.
    """
    zone = zone_of(trigger)
    following = [local_text(instant, zone) for instant in islice(instants_after(trigger, after), count)]
    return TriggerExplanation(trigger.describe(), _describe_clock_changes(trigger), following)


def zone_of(trigger: Trigger) -> tzinfo:
    """Return the time zone of a trigger."""
    rule = trigger.trigger if isinstance(trigger, Limited) else trigger
    return rule.zone if isinstance(rule, Cron) else UTC


def local_text(instant: int, zone: tzinfo) -> str:
    """Format an instant (ms) in a time zone."""
    return datetime.fromtimestamp(instant / 1000, zone).isoformat(" ", "seconds")


def _describe_clock_changes(trigger: Trigger) -> str:
    rule = trigger.trigger if isinstance(trigger, Limited) else trigger
    if isinstance(rule, Cron) and rule.zone is UTC:
        return "none: UTC has no clock changes"
    if not isinstance(rule, Cron) or rule.follows_real_time:
        return "goes by elapsed time"
    gap = "due right after the gap" if rule.dst_gap == "run_after" else "not due"
    fold = "both times" if rule.dst_fold == "both" else f"the {rule.dst_fold} time only"
    return f"a skipped time is {gap}; a repeated time is due {fold}"
