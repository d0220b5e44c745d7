"""What has come so far of one expression, and what follows from it: one record in the state, for all processes.

    note (who saw it) --> came --> is enough --> a firing --> taken by a beat --> published --> confirmed: gone
    tick (a beat: time) ---^          +-- after `debounce` without another one

The record changes by compare-and-set only. Events are recognised by their ids: one that is noted twice counts once.
A firing stays until the broker has confirmed its message; a beat that finds it after its `until` publishes the same
one.
"""

import hashlib
from typing import Final

import msgspec

from taskmq.model.units import to_datetime
from taskmq.reactions.model.conditions import Condition, Expression, TimeComes, conditions_of, is_met, rule_of
from taskmq.reactions.model.events import ReactionEvent, TimeCame
from taskmq.schedules.triggers.trigger import most_recent

__all__ = [
    "LEASE_MS",
    "MOST_FIRINGS",
    "PendingReaction",
    "ReactionCall",
    "ReactionPlan",
    "RecordedEvent",
    "confirm",
    "note",
    "tick",
    "wake_of",
]

LEASE_MS: Final = 10_000
"""After so long a firing is taken over by another beat, in ms."""
MOST_FIRINGS: Final = 100
"""So many may wait for the broker; then nothing more is noted."""
_MOST_SEEN: Final = 1_000


class ReactionPlan(msgspec.Struct, frozen=True):
    """What does not change.

    Attributes:
        debounce: for so many ms nothing may have come any more; 0: it fires at once.
    """

    expression: Expression
    debounce: int = 0

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return conditions_of(self.expression)


class RecordedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event, and what tells it from others of its condition."""

    id: str
    event: ReactionEvent


class ReactionCall(msgspec.Struct, frozen=True, array_like=True):
    """One call that is to be sent.

    Attributes:
        events: the last one of each condition that has come, in the order of the conditions.
        owner: the beat that publishes it; "" where none does yet.
        until: when others take it over, ms.
    """

    id: str
    events: list[ReactionEvent]
    owner: str = ""
    until: int = 0


class PendingReaction(msgspec.Struct, array_like=True):
    """What has happened of a reaction since it last fired, as the state keeps it.

    Attributes:
        rule: tells the plan that it was made by from others.
        came: the last event of each condition since the last firing, by the condition's number.
        seen: the last thousand events, by condition and id.
        marks: up to where the instants of a condition of time are decided on, by the condition's number.
        due: when it fires by itself, ms; None: not.
        fired: how many calls the broker has confirmed.
        failed: how many could not be sent.
        last: when the last of them was confirmed, ms.
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


def note(pending: PendingReaction, plan: ReactionPlan, *, number: int, noted: RecordedEvent, now: int) -> bool:
    """Count what has happened, once; False, and nothing is changed, where too many firings wait for the broker."""
    seen = f"{number}:{noted.id}"
    _recognise(pending, plan, now)
    if seen in pending.seen:
        return True
    if len(pending.firings) >= MOST_FIRINGS:
        return False
    pending.seen = [*pending.seen[1 - _MOST_SEEN :], seen]
    _come(pending, plan, number, noted, now)
    return True


def tick(pending: PendingReaction, plan: ReactionPlan, *, now: int, owner: str) -> list[ReactionCall]:
    """Look at the time; the firings that `owner` has to publish now."""
    _recognise(pending, plan, now)
    if len(pending.firings) < MOST_FIRINGS:
        for number, condition in enumerate(plan.conditions):
            if isinstance(condition, TimeComes):
                _look_at_clock(pending, plan, number, condition, now)
        if pending.due is not None and pending.due <= now:
            _fire(pending)
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
    """These were published, or can never be."""
    kept = [firing for firing in pending.firings if firing.id not in ids]
    gone = len(pending.firings) - len(kept)
    pending.firings = kept
    if is_sent:
        # One that was confirmed by two beats counts once.
        pending.fired += gone
        pending.last = now if gone else pending.last
    else:
        pending.failed += gone


def wake_of(pending: PendingReaction, plan: ReactionPlan, *, now: int) -> int | None:
    """When time changes something; None: it does not."""
    looks = [firing.until for firing in pending.firings]
    if pending.due is not None:
        looks.append(pending.due)
    for number, condition in enumerate(plan.conditions):
        if isinstance(condition, TimeComes):
            following = condition.trigger.next_after(pending.marks.get(number, now))
            if following is not None:
                looks.append(following)
    return min(looks, default=None)


def _recognise(pending: PendingReaction, plan: ReactionPlan, now: int) -> None:
    """Have what belongs to this plan: what has come for another one is forgotten, but for what is to be sent."""
    rule = rule_of(plan.expression, plan.debounce)
    if pending.rule != rule:
        pending.rule = rule
        pending.came, pending.seen, pending.due = {}, [], None
        pending.marks = {
            number: now for number, condition in enumerate(plan.conditions) if isinstance(condition, TimeComes)
        }


def _look_at_clock(pending: PendingReaction, plan: ReactionPlan, number: int, condition: TimeComes, now: int) -> None:
    following = condition.trigger.next_after(pending.marks[number])
    if following is None or following > now:
        return
    instant = most_recent(condition.trigger, following, now)
    pending.marks = {**pending.marks, number: instant}
    came = TimeCame(instant=to_datetime(instant))
    _come(pending, plan, number, RecordedEvent(str(instant), came), now)


def _come(pending: PendingReaction, plan: ReactionPlan, number: int, noted: RecordedEvent, now: int) -> None:
    pending.came = {**pending.came, number: noted}
    if not is_met(plan.expression, pending.came.keys()):
        return
    if plan.debounce:
        pending.due = now + plan.debounce
    else:
        _fire(pending)


def _fire(pending: PendingReaction) -> None:
    came = sorted(pending.came.items())
    told = "\n".join(f"{number}:{noted.id}" for number, noted in came)
    name = hashlib.sha256(f"{pending.rule}\n{told}".encode()).hexdigest()[:32]
    pending.firings = [*pending.firings, ReactionCall(name, [noted.event for _, noted in came])]
    pending.came, pending.due = {}, None
