"""What some runs have to pass before they start, and who has to know how they ended.

    attempt -> guards by rank, the smallest first -> a permit of each -> run -> permits released, the last one first

A guard answers with a permit, or with the outcome that the attempt has instead of a run. Most tasks have no guard,
and pay for none: `Guards.concern` says whether an attempt has any, and the fast path asks the two halves of that,
`concern_task` once for a task and `is_marked` for each message.
"""

import asyncio
import enum
import logging
import operator
import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, Protocol

from taskmq.errors import SendError, StateUnavailable
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import AlreadyDone, Cancelled, Dead, Interrupted, Outcome, Snoozed
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit

__all__ = ["Guard", "GuardRank", "Guards", "is_marked"]

_log = logging.getLogger("taskmq.worker")

# How long an attempt waits at a guard that cannot be asked, in seconds, and how long at the broker afterwards.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)
_ENDS: Final = (AlreadyDone, Cancelled, Dead)


class GuardRank(enum.IntEnum):
    """The order in which the worker's own guards are passed, the smallest first. Others take any number between."""

    REACTIONS = 10
    """The first to be passed and the last to be released: what a later guard sends back has not ended."""
    WORKFLOWS = 20
    """Early: what later guards answer is an end that the workflow has to know."""
    OCCURRENCES = 30
    """Before the keys: for its schedule, a duplicate that is answered there has ended, too."""
    IDEMPOTENCY = 40
    LIMITS = 50
    """Behind all that may refuse: what is not run must not take a start from others."""
    UNIQUENESS = 60
    """The last: it frees its key, and if another guard sent the run back then, the job would wait without one."""


class Guard(Protocol):
    """One thing that a run may have to pass."""

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """Whether runs of this task may have to pass here, whatever their message says. Asked once for a task."""
        ...

    def concerns(self, attempt: Attempt) -> bool:
        """Whether the attempt has to pass here.

        Asked for every attempt of a task that some guard `concerns_task`, or whose message `is_marked`; no other
        attempt comes here.
        """
        ...

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        """Let the attempt in, or say what becomes of it instead.

        A job that was cancelled while it waited (`attempt.cancelled`) comes here as well and is not run: a guard that
        only holds runs back answers with a permit that does nothing, or is not concerned.

        Raises:
            StateUnavailable: the state could not be reached; the attempt comes again later.
        """
        ...


def is_marked(envelope: Envelope) -> bool:
    """Whether a message says of itself that more than its run is concerned.

    It has a key, is a step of a workflow, or refers to its arguments.
    """
    return envelope.key is not None or envelope.flow is not None or envelope.blob is not None


class Guards:
    """All guards of one worker.

    Args:
        ranked: each with its rank.
    """

    def __init__(self, ranked: Iterable[tuple[int, Guard]]) -> None:
        self._guards = tuple(guard for _, guard in sorted(ranked, key=operator.itemgetter(0)))
        self._tasks: dict[str, bool] = {}

    def concern(self, attempt: Attempt) -> bool:
        """Whether the attempt may have to pass a guard."""
        return is_marked(attempt.envelope) or self.concern_task(attempt.task)

    def concern_task(self, task: Task[..., Any]) -> bool:
        """Whether each attempt of the task may have to pass a guard."""
        known = self._tasks.get(task.name)
        if known is None:
            known = self._tasks[task.name] = any(guard.concerns_task(task) for guard in self._guards)
        return known

    async def acquire(self, attempt: Attempt) -> Outcome | None:
        """Acquire the permits of an attempt that guards concern; otherwise what becomes of it, and it has none.

        Where the state does not answer for two seconds, the attempt is snoozed.
        """
        for pause in _PAUSES:
            try:
                return await self._acquire(attempt)
            except StateUnavailable as error:
                _log.warning("job %s waits at a guard: %s", attempt.job_id, error)
                await asyncio.sleep(pause)
        try:
            return await self._acquire(attempt)
        except StateUnavailable as error:
            later = random.uniform(*_LATER)
            _log.warning("job %s comes again in %.1f s: %s", attempt.job_id, later, error)
            attempt.is_turned_back = True
            return Snoozed(timedelta(seconds=later))

    async def _acquire(self, attempt: Attempt) -> Outcome | None:
        try:
            for guard in self._guards:
                if not guard.concerns(attempt):
                    continue
                answer = await guard.acquire(attempt)
                if isinstance(answer, Outcome):
                    attempt.is_turned_back = True
                    # Who let it in has to know the job's end: settling says that, with the record.
                    if not isinstance(answer, _ENDS):
                        await self._turn_back(attempt, answer)
                    return answer
                if attempt.permits is None:
                    attempt.permits = []
                attempt.permits.append(answer)
        except BaseException:
            await self._turn_back(attempt, Interrupted())
            raise
        return None

    async def _turn_back(self, attempt: Attempt, outcome: Outcome) -> None:
        while attempt.permits:
            try:
                await attempt.permits.pop().release(outcome, None)
            except (StateUnavailable, SendError) as error:
                _log.warning("job %s: a permit ends by itself: %s", attempt.job_id, error)
