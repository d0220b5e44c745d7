"""What has come so far of one expression, and what follows from it: one record in the state, for all processes.

    note (who saw it) --> came --> is enough --> a firing --> taken by a beat --> published --> confirmed: gone
    tick (a beat: time) ---^          +-- after `debounce` without another one

The record changes by compare-and-set only. A happening is told by its id: one that is noted twice counts once.
A firing stays until the broker has confirmed its message; whoever finds it after its `until` publishes the same one.
"""

import hashlib
from datetime import UTC, datetime
from typing import Final

import msgspec

from taskmq.reactions.conditions import Condition, Expression, TimeComes, conditions_of, is_met, rule_of
from taskmq.reactions.events import Happening, TimeCame
from taskmq.schedules.triggers.trigger import most_recent

__all__ = ["LEASE_MS", "MOST_FIRINGS", "Firing", "Noted", "Plan", "Standing", "confirm", "note", "tick", "wake_of"]

LEASE_MS: Final = 10_000
"""After so long a firing is taken over by another beat, in ms."""
MOST_FIRINGS: Final = 100
"""So many may wait for the broker; then nothing more is noted."""
_MOST_SEEN: Final = 1_000


class Plan(msgspec.Struct, frozen=True):
    """What does not change.

    Attributes:
        debounce: for so many ms nothing may have come any more; 0: it fires at once.
    """

    expression: Expression
    debounce: int = 0

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return conditions_of(self.expression)


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """A happening, and what tells it from others of its condition."""

    id: str
    happening: Happening


class Firing(msgspec.Struct, frozen=True, array_like=True):
    """One call that is to be sent.

    Attributes:
        happenings: the last one of each condition that has come, in the order of the conditions.
        owner: the beat that publishes it; "" where none does yet.
        until: when others take it over, ms.
    """

    id: str
    happenings: list[Happening]
    owner: str = ""
    until: int = 0


class Standing(msgspec.Struct, array_like=True):
    """The record.

    Attributes:
        rule: tells the plan that it was made by from others.
        came: the last happening of each condition since the last firing, by the condition's number.
        seen: the last thousand happenings, by condition and id.
        marks: up to where the instants of a condition of time are decided on, by the condition's number.
        due: when it fires by itself, ms; None: not.
        fired: how many calls the broker has confirmed.
        failed: how many could not be sent.
        last: when the last of them was confirmed, ms.
    """

    rule: str = ""
    came: dict[int, Noted] = {}
    seen: list[str] = []
    marks: dict[int, int] = {}
    due: int | None = None
    firings: list[Firing] = []
    fired: int = 0
    failed: int = 0
    last: int | None = None


def note(standing: Standing, plan: Plan, *, number: int, noted: Noted, now: int) -> bool:
    """Count what has happened, once; False, and nothing is changed, where too many firings wait for the broker."""
    seen = f"{number}:{noted.id}"
    _recognise(standing, plan, now)
    if seen in standing.seen:
        return True
    if len(standing.firings) >= MOST_FIRINGS:
        return False
    standing.seen = [*standing.seen[1 - _MOST_SEEN :], seen]
    _come(standing, plan, number, noted, now)
    return True


def tick(standing: Standing, plan: Plan, *, now: int, owner: str) -> list[Firing]:
    """Look at the time; the firings that `owner` has to publish now."""
    _recognise(standing, plan, now)
    if len(standing.firings) < MOST_FIRINGS:
        for number, condition in enumerate(plan.conditions):
            if isinstance(condition, TimeComes):
                _look_at_clock(standing, plan, number, condition, now)
        if standing.due is not None and standing.due <= now:
            _fire(standing)
    taken: list[Firing] = []
    kept: list[Firing] = []
    for found in standing.firings:
        firing = found
        if firing.until <= now:
            firing = Firing(firing.id, firing.happenings, owner, now + LEASE_MS)
            taken.append(firing)
        kept.append(firing)
    standing.firings = kept
    return taken


def confirm(standing: Standing, ids: set[str], *, now: int, is_sent: bool = True) -> None:
    """These were published; or they cannot be, by anybody."""
    kept = [firing for firing in standing.firings if firing.id not in ids]
    gone = len(standing.firings) - len(kept)
    standing.firings = kept
    if is_sent:
        # One that was confirmed by two beats counts once.
        standing.fired += gone
        standing.last = now if gone else standing.last
    else:
        standing.failed += gone


def wake_of(standing: Standing, plan: Plan, *, now: int) -> int | None:
    """When time changes something; None: it does not."""
    looks = [firing.until for firing in standing.firings]
    if standing.due is not None:
        looks.append(standing.due)
    for number, condition in enumerate(plan.conditions):
        if isinstance(condition, TimeComes):
            following = condition.trigger.next_after(standing.marks.get(number, now))
            if following is not None:
                looks.append(following)
    return min(looks, default=None)


def _recognise(standing: Standing, plan: Plan, now: int) -> None:
    """Have what belongs to this plan: what has come for another one is forgotten, but for what is to be sent."""
    rule = rule_of(plan.expression, plan.debounce)
    if standing.rule != rule:
        standing.rule = rule
        standing.came, standing.seen, standing.due = {}, [], None
        standing.marks = {
            number: now for number, condition in enumerate(plan.conditions) if isinstance(condition, TimeComes)
        }


def _look_at_clock(standing: Standing, plan: Plan, number: int, condition: TimeComes, now: int) -> None:
    following = condition.trigger.next_after(standing.marks[number])
    if following is None or following > now:
        return
    instant = most_recent(condition.trigger, following, now)
    standing.marks = {**standing.marks, number: instant}
    came = TimeCame(instant=datetime.fromtimestamp(instant / 1000, UTC))
    _come(standing, plan, number, Noted(str(instant), came), now)


def _come(standing: Standing, plan: Plan, number: int, noted: Noted, now: int) -> None:
    standing.came = {**standing.came, number: noted}
    if not is_met(plan.expression, standing.came.keys()):
        return
    if plan.debounce:
        standing.due = now + plan.debounce
    else:
        _fire(standing)


def _fire(standing: Standing) -> None:
    came = sorted(standing.came.items())
    told = "\n".join(f"{number}:{noted.id}" for number, noted in came)
    name = hashlib.sha256(f"{standing.rule}\n{told}".encode()).hexdigest()[:32]
    standing.firings = [*standing.firings, Firing(name, [noted.happening for _, noted in came])]
    standing.came, standing.due = {}, None
