"""Checks between a job and its run, in the order in which the scheduler applies them. Pure.

state and reasons of a job -> each check with its state; exactly one of them blocks
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.model.states import JobState
from taskmq.stored_jobs.explanations.queue_condition import WaitReason

CheckName = Literal[
    "hold", "dependencies", "time", "scheduler", "pause", "workers", "turn", "limit", "quota", "nodes", "slot"
]
CheckState = Literal["passed", "blocking", "pending", "unknown"]


class WaitCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that a job has to pass before it runs.

    Attributes:
        state: `pending` checks come after the blocking one; `unknown` ones could not be determined.
        text: why it is passed, if no reason says so.
        kinds: kinds of the reasons that belong to it.
        since: when it was passed, or since when it keeps the job; None if that is not known.
    """

    name: CheckName
    state: CheckState
    text: str = ""
    kinds: list[str]
    since: datetime | None = None


class _Rule(NamedTuple):
    """A check: kinds of its reasons, its text when it is passed, and kinds of reasons why it is unknown."""

    kinds: tuple[str, ...]
    passed: str
    unknown: tuple[str, ...] = ()


_RULES: Final[dict[CheckName, _Rule]] = {
    "hold": _Rule(("held",), "it is not held"),
    "dependencies": _Rule(("dependency",), "it waits for no other job"),
    "time": _Rule(("time",), "it is due"),
    "scheduler": _Rule(("scheduler",), "a scheduler holds the partition of its queue"),
    "pause": _Rule(("paused",), "its queue is not paused", ("unknown",)),
    "workers": _Rule(("broker", "workers"), "the broker answers, and workers consume its queue"),
    "turn": _Rule(("cap", "turn", "pool"), "its turn came"),
    "limit": _Rule(("limit",), "no limit of its task holds it back"),
    "quota": _Rule(("quota",), "no quota makes it wait"),
    "nodes": _Rule(("placement",), "it has room on a node"),
    "slot": _Rule(("message",), ""),
}
# The check that keeps a job in its state.
_OF_STATE: Final[dict[JobState, CheckName]] = {
    JobState.HELD: "hold",
    JobState.WAITING: "dependencies",
    JobState.SCHEDULED: "time",
    JobState.RETRYING: "time",
    JobState.QUEUED: "turn",
    JobState.DISPATCHED: "slot",
}


def list_checks(
    state: JobState,
    reasons: Sequence[WaitReason],
    *,
    is_placed: bool,
    passed_at: Mapping[CheckName, datetime | None] | None = None,
) -> list[WaitCheck]:
    """Return the checks of a job that waits; none of a job that runs or has ended.

    Args:
        is_placed: whether nodes have to have room for it, whose workers run it.
        passed_at: when the job passed checks, if it has; the reasons have the other times.
    """
    if state not in _OF_STATE:
        return []
    names: list[CheckName] = [name for name in _RULES if name != ("workers" if is_placed else "nodes")]
    here = names.index(_OF_STATE[state])
    # Only a ready job is kept by something besides its state.
    is_ready = state in {JobState.QUEUED, JobState.DISPATCHED}
    obstacles = {each.kind for each in reasons if is_ready and each.is_obstacle}
    blocked = next((at for at, name in enumerate(names) if not obstacles.isdisjoint(_RULES[name].kinds)), here)
    # A dispatched job has passed its turn and its limits, whatever keeps workers from it now.
    passed = max(blocked, here) if state is JobState.DISPATCHED else blocked
    found = [_check(name, at, blocked, passed, reasons) for at, name in enumerate(names)]
    times = passed_at or {}
    return [replace(each, since=times.get(each.name)) if each.state == "passed" else each for each in found]


def _check(name: CheckName, at: int, blocked: int, passed: int, reasons: Sequence[WaitReason]) -> WaitCheck:
    rule, kinds = _RULES[name], {each.kind for each in reasons}
    state: CheckState = "passed" if at < passed else "pending"
    if at == blocked:
        state = "blocking"
    elif not kinds.isdisjoint(rule.unknown):
        state = "unknown"
    text = rule.passed if state == "passed" and kinds.isdisjoint(rule.kinds) else ""
    since = next((each.since for each in reasons if each.kind in rule.kinds and each.since), None)
    return WaitCheck(name=name, state=state, text=text, kinds=[*rule.kinds, *rule.unknown], since=since)
