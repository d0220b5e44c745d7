"""What some runs have to pass before they start, and who has to know how they ended.

    attempt -> guards, one after the other -> a permit of each -> run -> each permit is released, the last one first

A guard answers with a permit, or with the outcome that the attempt has instead of a run. Most tasks have no guard,
and pay for none.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from taskmq.errors import SendError, StateUnavailable
from taskmq.model.outcome import AlreadyDone, Cancelled, Dead, Interrupted, Outcome, Snoozed
from taskmq.worker.attempt import Attempt, Permit

__all__ = ["Guard", "Guards"]

_log = logging.getLogger("taskmq.worker")

# How long an attempt waits at a guard that cannot be asked, in seconds, and how long at the broker afterwards.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)
_ENDS: Final = (AlreadyDone, Cancelled, Dead)


class Guard(Protocol):
    """One thing that a run may have to pass."""

    def concerns(self, attempt: Attempt) -> bool:
        """Whether the attempt has to pass here. Cheap: it is asked for every attempt that may have a guard."""
        ...

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        """Let the attempt in, or say what becomes of it instead.

        A job that was cancelled while it waited (`attempt.cancelled`) comes here as well and is not run: a guard that
        only holds runs back answers with a permit that does nothing, or is not concerned.

        Raises:
            StateUnavailable: the state could not be reached; the attempt comes again later.
        """
        ...


class Guards:
    """All guards of one worker, in the order in which they are passed."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = tuple(guards)

    async def acquire(self, attempt: Attempt) -> Outcome | None:
        """Give the attempt its passes; otherwise what becomes of it, and it has none.

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
                    # Who let it in has to know the job's end: settling tells that, with the record.
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
