"""The last instant instead of the next."""

from taskmq.schedule.trigger import Trigger

__all__ = ["most_recent"]


def most_recent(trigger: Trigger, instant: int, now: int) -> int:
    """The last nominal instant up to `now`; `instant` is one of them."""
    # A step back that doubles, because a trigger knows the way forward only.
    back = 1
    while (found := trigger.next_after(max(now - back, instant - 1))) is None or found > now:
        back *= 2
    while (later := trigger.next_after(found)) is not None and later <= now:
        found = later
    return found
