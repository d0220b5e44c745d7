"""Answers to why a job waits, and what would help it. Pure.

reasons and checks -> the sentence of the blocking reason; reasons -> the actions that remove them
expected starts -> the actions that start a ready job earlier
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from taskmq.model.units import duration_text, to_datetime
from taskmq.stored_jobs.explanations.checks import WaitCheck
from taskmq.stored_jobs.explanations.expected_starts import StartEstimate
from taskmq.stored_jobs.explanations.queue_condition import WaitReason

AlternativeKind = Literal["held", "scheduler", "paused", "workers", "cap", "quota", "priority", "slots"]

_REMEDIES: Final[dict[AlternativeKind, str]] = {
    "held": "release it",
    "scheduler": "start `taskmq scheduler`",
    "paused": "resume queue {0!r} (`taskmq queue resume {0}`)",
    "workers": "start a worker for queue {0!r}",
    "cap": "raise the cap of pool {0!r}",
    "quota": "raise quota {0!r}",
}
_ONCE: Final = " once all workers have the code that began it"
# Only operators can do these.
_OPERATORS: Final = frozenset({"paused", "cap", "quota"})
_LEAST_GAIN: Final = 1.0
"""Seconds by which an alternative has to start a job earlier."""


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """An action that would help a waiting job.

    Attributes:
        kind: `priority` and `slots` start a ready job earlier; the others remove the obstacle of that kind.
        text: the action, and its effect if that can be estimated.
        start: the expected start of the job after the action; None if it cannot be estimated.
    """

    kind: AlternativeKind
    text: str
    start: StartEstimate | None = None


def find_answer(reasons: Sequence[WaitReason], checks: Sequence[WaitCheck]) -> str:
    """Return the text of the reason behind the blocking check; of the first reason if nothing is checked."""
    kinds = {kind for check in checks if check.state == "blocking" for kind in check.kinds}
    blocking = sorted((each for each in reasons if each.kind in kinds), key=lambda each: not each.is_obstacle)
    return next((each.text for each in [*blocking, *reasons]), "")


def describe_turn(queue: str, start: StartEstimate, now: int) -> str:
    """Describe the turn of a ready job that nothing keeps from its run.

    Args:
        now: the store's time in ms.
    """
    turn = f"it is next in queue {queue!r}"
    if before := start.position - 1:
        ahead = "1 job starts" if before == 1 else f"{before:,} jobs start"
        turn = f"it waits for its turn in queue {queue!r}: {ahead} before it"
    return f"{turn}, and it is expected to start in {_wait_text(start, now)}"


def list_remedies(reasons: Sequence[WaitReason], *, is_suspended: bool, reader: str | None) -> list[Alternative]:
    """List the actions that remove the obstacles among the reasons.

    Args:
        is_suspended: whether the job is held in the middle of its run.
        reader: the tenant that asks; None: an operator.
    """
    found = [
        Alternative(kind=kind, text=text.format(each.subject) + (_ONCE if is_suspended and kind == "held" else ""))
        for kind, text in _REMEDIES.items()
        for each in reasons
        if each.kind == kind and (reader is None or kind not in _OPERATORS)
    ]
    # A pool may have several exhausted caps.
    return list(dict.fromkeys(found))


def describe_earlier(
    kind: AlternativeKind, action: str, start: StartEstimate | None, *, than: StartEstimate, now: int
) -> list[Alternative]:
    """Return the action with its effect on a ready job; nothing if the job does not start a second earlier."""
    if start is None or (than.likely - start.likely).total_seconds() < _LEAST_GAIN:
        return []
    effect = f"start in {_wait_text(start, now)} instead of {_wait_text(than, now)}"
    if start.position != than.position:
        effect = f"be at position {start.position:,} instead of {than.position:,} and {effect}"
    return [Alternative(kind=kind, text=f"{action}: the job would {effect}", start=start)]


def _wait_text(start: StartEstimate, now: int) -> str:
    return duration_text((start.likely - to_datetime(now)).total_seconds())
