"""The contract of guards: checks that some runs pass before they start.

    attempt -> guards by rank, the smallest first -> a permit of each -> run -> permits released, the last one first

A guard answers with a permit, or with the outcome that the attempt has instead of a run. Most tasks have no guard,
and pay nothing: `Guards.concern` returns whether an attempt has any. The fast path asks the two halves of that
question: `concern_task` once for a task, and `is_marked` for each message.
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

_log = logging.getLogger("taskmq.worker")

# Seconds that an attempt waits at a guard whose state is unavailable, and then at the broker.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)
_ENDS: Final = (AlreadyDone, Cancelled, Dead)


class GuardRank(enum.IntEnum):
    """Order in which the worker's own guards are passed, the smallest first. Other guards use numbers in between."""

    REACTIONS = 10
    """Passed first and released last: a run that a later guard sends back has not ended."""
    OCCURRENCES = 30
    """Passed before the keys: for its schedule, a duplicate that is answered there has ended, too."""
    IDEMPOTENCY = 40
    LIMITS = 50
    """Passed after all that may refuse: a run that does not start must not use up a start."""
    UNIQUENESS = 60
    """Passed last: it frees its key; if a later guard sent the run back, the job would wait without one."""


class Guard(Protocol):
    """A check that a run may have to pass."""

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """Return whether runs of this task may have to pass, whatever their message is. Asked once for a task."""
        ...

    def concerns(self, attempt: Attempt) -> bool:
        """Return whether the attempt must pass this guard.

        Asked for every attempt of a task that some guard `concerns_task`, or whose message `is_marked`; for no other
        attempt.
        """
        ...

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        """Admit the attempt, or decide its outcome instead.

        A job that was cancelled while it waited (`attempt.cancelled`) is asked for, too, and does not run. A guard
        that only holds runs back answers with a permit without effect, or is not concerned.

        Raises:
            StateUnavailable: the state could not be reached; the attempt is tried again later.
        """
        ...


def is_marked(envelope: Envelope) -> bool:
    """Return whether a message has consequences beyond its run.

    It has a key, or refers to arguments.
    """
    return envelope.key is not None or envelope.has_references


class Guards:
    """Guards of one worker.

    Args:
        ranked: each with its rank.
    """

    def __init__(self, ranked: Iterable[tuple[int, Guard]]) -> None:
        self._guards = tuple(guard for _, guard in sorted(ranked, key=operator.itemgetter(0)))
        self._tasks: dict[str, bool] = {}

    def concern(self, attempt: Attempt) -> bool:
        """Return whether the attempt may have to pass a guard."""
        return is_marked(attempt.envelope) or self.concern_task(attempt.task)

    def concern_task(self, task: Task[..., Any]) -> bool:
        """Return whether each attempt of the task may have to pass a guard."""
        known = self._tasks.get(task.name)
        if known is None:
            known = self._tasks[task.name] = any(guard.concerns_task(task) for guard in self._guards)
        return known

    async def acquire(self, attempt: Attempt) -> Outcome | None:
        """Acquire the permits of an attempt that guards concern; otherwise return its outcome, and hold no permit.

        If the state does not answer for two seconds, the attempt is snoozed.
        """
        for pause in _PAUSES:
            try:
                return await self._acquire(attempt)
            except StateUnavailable as error:
                _log.warning("job %s: a guard is unavailable, waiting: %s", attempt.job_id, error)
                await asyncio.sleep(pause)
        try:
            return await self._acquire(attempt)
        except StateUnavailable as error:
            later = random.uniform(*_LATER)
            _log.warning("job %s: a guard is unavailable, will retry in %.1f s: %s", attempt.job_id, later, error)
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
                    # The guards that admitted it must learn the job's end: settling does that, with the record.
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
                _log.warning("job %s: releasing a permit failed, it will expire: %s", attempt.job_id, error)
