"""Plan of due and missed instants of a schedule. Pure."""

from collections import deque
from typing import Final

import msgspec

from taskmq.schedules.policy import SchedulePolicy
from taskmq.schedules.triggers import Every, Trigger
from taskmq.schedules.triggers.trigger import most_recent

MOST_COUNTED: Final = 10_000
"""Maximum number of missed instants counted for a rule without a period; beyond it the count is too low."""

_MOST_AT_ONCE: Final = 100


class Due(msgspec.Struct, frozen=True):
    """Instants that became due between the mark and now.

    Attributes:
        emit: instants to emit now, in order.
        missed: how many are dropped.
        coalesced: how many of the dropped ones a later one stands for, because of `catchup="once"`.
        backlog: first and last of those emitted a few at a time.
        mark: the instant up to which this decides.
    """

    emit: tuple[int, ...] = ()
    missed: int = 0
    coalesced: int = 0
    backlog: tuple[int, int] | None = None
    mark: int = 0


def plan_due(trigger: Trigger, *, mark: int, now: int, policy: SchedulePolicy) -> Due:
    """Decide about the instants after `mark` up to `now`.

    At most 100 are emitted at once; the mark then stays at the last of them, and the next call decides about the
    rest.
    """
    following = trigger.next_after(mark)
    if following is None or following > now:
        return Due(mark=mark)
    # Earlier ones count as missed.
    late = now - policy.late_after
    old = last_missed = None
    if following < late:
        old, last_missed = following, most_recent(trigger, following, late - 1)
    recent = instants_between(trigger, late - 1 if old is not None else mark, now, limit=_MOST_AT_ONCE)
    end = recent[-1] if recent else last_missed
    assert end is not None
    if old is None or last_missed is None:
        return Due(emit=tuple(recent), mark=end)
    count = _count(trigger, mark, last_missed)
    if policy.catchup == "once" and not recent and last_missed > now - policy.catchup_window:
        return Due(emit=(last_missed,), missed=count - 1, coalesced=count - 1, mark=end)
    if policy.catchup == "all" and last_missed > now - policy.catchup_window:
        first, chosen = _last_of(trigger, max(mark, now - policy.catchup_window), last_missed, policy.catchup_limit)
        return Due(emit=tuple(recent), missed=count - chosen, backlog=(first, last_missed), mark=end)
    coalesced = count if policy.catchup == "once" and recent else 0
    return Due(emit=tuple(recent), missed=count, coalesced=coalesced, mark=end)


def take_from(trigger: Trigger, *, after: int, until: int, limit: int) -> tuple[list[int], bool]:
    """Return up to `limit` instants after `after` up to `until`, and whether there are more."""
    found = instants_between(trigger, after, until, limit=limit + 1)
    return found[:limit], len(found) > limit


def instants_between(trigger: Trigger, after: int, until: int, *, limit: int) -> list[int]:
    """Return the first `limit` instants after `after` up to `until`."""
    found: list[int] = []
    following = trigger.next_after(after)
    while following is not None and following <= until and len(found) < limit:
        found.append(following)
        following = trigger.next_after(following)
    return found


def _count(trigger: Trigger, after: int, until: int) -> int:
    """Count the instants after `after` up to `until`, at most `MOST_COUNTED`."""
    if isinstance(trigger, Every):
        return (until - trigger.phase) // trigger.period - (after - trigger.phase) // trigger.period
    return len(instants_between(trigger, after, until, limit=MOST_COUNTED))


def _last_of(trigger: Trigger, after: int, until: int, limit: int) -> tuple[int, int]:
    """Return the first of the last `limit` instants after `after` up to `until`, and their number."""
    # Steps back double, as above: the window may hold far more than needed.
    back = 1_000
    while True:
        start = max(after, until - back)
        kept: deque[int] = deque(maxlen=limit)
        following = trigger.next_after(start)
        while following is not None and following <= until:
            kept.append(following)
            following = trigger.next_after(following)
        if len(kept) == limit or start == after:
            return kept[0], len(kept)
        back *= 2
