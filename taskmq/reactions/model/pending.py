"""Events and calls of one reaction: one record in the state, shared by all processes.

    record_event (any process) --> received --> expression met --> firing --> leased by a beat --> confirmed
    tick (a beat: time) --------------^              +-- after `debounce` without further events

The record changes only by compare-and-set. Events are identified by their ids, so one recorded twice counts once.
A firing stays until the broker has confirmed its message. If its lease (`until`) expires, another beat publishes the
same message.
"""

import hashlib
from typing import Final, Literal

import msgspec

from taskmq.model.units import to_datetime
from taskmq.reactions.model.conditions import Condition, TimeComes
from taskmq.reactions.model.events import ReactionEvent, TimeCame
from taskmq.reactions.model.expressions import Expression, conditions_of, is_met, rule_of
from taskmq.schedules.triggers.trigger import most_recent

LEASE_MS: Final = 10_000
"""Lease of a beat on a firing, in ms."""
MOST_FIRINGS: Final = 100
"""Most firings that may wait for the broker; beyond that no event is recorded."""
_MOST_SEEN: Final = 1_000


class ReactionPlan(msgspec.Struct, frozen=True):
    """The immutable part of a reaction.

    Attributes:
        debounce: time in ms without further events before it fires; 0: it fires at once.
        limit: most ms between its first event and its firing; 0: unlimited.
        at_limit: `drop` forgets the events; `call` fires with those that have come.
    """

    expression: Expression
    debounce: int = 0
    limit: int = 0
    at_limit: Literal["drop", "call"] = "drop"

    @property
    def rule(self) -> str:
        """Digest that is equal for equal plans, in every process."""
        return rule_of(self.expression, self.debounce, self.limit)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return conditions_of(self.expression)


class RecordedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event and its id, unique within its condition."""

    id: str
    event: ReactionEvent


class ReactionCall(msgspec.Struct, frozen=True, array_like=True):
    """A call to send.

    Attributes:
        events: last event of each condition, in the order of the conditions.
        owner: the beat that publishes it; "" if none does yet.
        until: when the owner's lease expires (ms).
    """

    id: str
    events: list[ReactionEvent]
    owner: str = ""
    until: int = 0


class PendingReaction(msgspec.Struct, array_like=True):
    """State of a reaction since its last firing.

    Attributes:
        rule: digest of the plan that the record belongs to.
        came: last event of each condition since the last firing, by the condition's number.
        seen: the last thousand events, by condition and id.
        marks: last instant handled of each time condition, by the condition's number.
        due: when the debounce time ends (ms); None if none is running.
        fired: number of calls that the broker has confirmed.
        failed: number of calls that could not be sent.
        last: when the last call was confirmed (ms).
        since: when the first of `came` was recorded (ms); None if there is none, or an older taskmq recorded it.
        dropped: how often the limit forgot the events.
    """

    rule: str = ""
    came: dict[int, RecordedEvent] = {}
    seen: list[str] = []
    marks: dict[int, int] = {}
    due: int | None = None
    firings: list[ReactionCall] = []
    fired: int = 0
    failed: int = 0
    last: int | None = None
    since: int | None = None
    dropped: int = 0


def record_event(
    pending: PendingReaction, plan: ReactionPlan, *, number: int, recorded: RecordedEvent, now: int
) -> bool:
    """Record an event once. Returns False and changes nothing if too many firings wait for the broker."""
    seen = f"{number}:{recorded.id}"
    _adopt_plan(pending, plan, now)
    if seen in pending.seen:
        return True
    if len(pending.firings) >= MOST_FIRINGS:
        return False
    pending.seen = [*pending.seen[1 - _MOST_SEEN :], seen]
    _add_event(pending, plan, number, recorded, now)
    return True


def tick(pending: PendingReaction, plan: ReactionPlan, *, now: int, owner: str) -> list[ReactionCall]:
    """Process the time conditions. Returns the firings that `owner` has leased and has to publish now."""
    _adopt_plan(pending, plan, now)
    if len(pending.firings) < MOST_FIRINGS:
        for number, condition in enumerate(plan.conditions):
            if isinstance(condition, TimeComes):
                _process_time(pending, plan, number, condition, now)
        if pending.due is not None and pending.due <= now:
            _fire(pending)
        if (end := _end_of_wait(pending, plan)) is not None and end <= now:
            _end_wait(pending, plan)
    taken: list[ReactionCall] = []
    kept: list[ReactionCall] = []
    for found in pending.firings:
        firing = found
        if firing.until <= now:
            firing = ReactionCall(firing.id, firing.events, owner, now + LEASE_MS)
            taken.append(firing)
        kept.append(firing)
    pending.firings = kept
    return taken


def confirm(pending: PendingReaction, ids: set[str], *, now: int, is_sent: bool = True) -> None:
    """Remove firings that were published, or that can never be."""
    kept = [firing for firing in pending.firings if firing.id not in ids]
    gone = len(pending.firings) - len(kept)
    pending.firings = kept
    if is_sent:
        # A firing confirmed by two beats counts once.
        pending.fired += gone
        pending.last = now if gone else pending.last
    else:
        pending.failed += gone


def wake_of(pending: PendingReaction, plan: ReactionPlan, *, now: int) -> int | None:
    """Return when to call `tick` next; None if no time is pending."""
    times = [firing.until for firing in pending.firings]
    if pending.due is not None:
        times.append(pending.due)
    if (end := _end_of_wait(pending, plan)) is not None:
        times.append(end)
    for number, condition in enumerate(plan.conditions):
        if isinstance(condition, TimeComes):
            following = condition.trigger.next_after(pending.marks.get(number, now))
            if following is not None:
                times.append(following)
    return min(times, default=None)


def _adopt_plan(pending: PendingReaction, plan: ReactionPlan, now: int) -> None:
    """Reset the record if it belongs to another plan; keep only the firings."""
    if pending.rule != plan.rule:
        pending.rule = plan.rule
        pending.came, pending.seen, pending.due, pending.since = {}, [], None, None
        pending.marks = {
            number: now for number, condition in enumerate(plan.conditions) if isinstance(condition, TimeComes)
        }


def _process_time(pending: PendingReaction, plan: ReactionPlan, number: int, condition: TimeComes, now: int) -> None:
    following = condition.trigger.next_after(pending.marks[number])
    if following is None or following > now:
        return
    instant = most_recent(condition.trigger, following, now)
    pending.marks = {**pending.marks, number: instant}
    came = TimeCame(instant=to_datetime(instant))
    _add_event(pending, plan, number, RecordedEvent(str(instant), came), now)


def _end_of_wait(pending: PendingReaction, plan: ReactionPlan) -> int | None:
    """Return when the limit of the wait is over (ms); None if nothing waits, or there is no limit."""
    return None if pending.since is None or not plan.limit else pending.since + plan.limit


def _end_wait(pending: PendingReaction, plan: ReactionPlan) -> None:
    if plan.at_limit == "call":
        _fire(pending)
    else:
        pending.came, pending.due, pending.since = {}, None, None
        pending.dropped += 1


def _add_event(pending: PendingReaction, plan: ReactionPlan, number: int, recorded: RecordedEvent, now: int) -> None:
    if plan.limit and not pending.came:
        pending.since = now
    pending.came = {**pending.came, number: recorded}
    if not is_met(plan.expression, pending.came.keys()):
        return
    if plan.debounce:
        pending.due = now + plan.debounce
    else:
        _fire(pending)


def _fire(pending: PendingReaction) -> None:
    came = sorted(pending.came.items())
    ids = "\n".join(f"{number}:{recorded.id}" for number, recorded in came)
    name = hashlib.sha256(f"{pending.rule}\n{ids}".encode()).hexdigest()[:32]
    pending.firings = [*pending.firings, ReactionCall(name, [recorded.event for _, recorded in came])]
    pending.came, pending.due, pending.since = {}, None, None
