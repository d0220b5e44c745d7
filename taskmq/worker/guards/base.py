"""What some runs have to pass before they start, and who has to know how they ended.

    attempt -> gates, one after the other -> a pass for each -> run -> each pass is left, the last one first

A gate answers with a pass, or with the outcome that the attempt has instead of a run. Most tasks have no gate, and
pay for none.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import SendError, StateUnavailable
from taskmq.model.outcome import Answered, Cancelled, Dead, Interrupted, Outcome, Snoozed
from taskmq.worker.attempt import Attempt

__all__ = ["Gate", "Gates", "Pass"]

_log = logging.getLogger("taskmq.worker")

# How long an attempt waits at a gate that cannot be asked, in seconds, and how long at the broker afterwards.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)
_ENDS: Final = (Answered, Cancelled, Dead)


class Pass(Protocol):
    """What one run was given by a gate."""

    async def leave(self, outcome: Outcome, record: ResultRecord | None) -> bool:
        """The run has ended. Called before its result is stored, its copy published or its delivery settled.

        Args:
            record: how the job ended, where the outcome ends it; None where it goes on. Its value is empty where the
                task keeps no results.

        Returns:
            False: what the pass stood for belongs to somebody else by now, so the outcome does not count; the
            delivery goes back.

        Raises:
            StateUnavailable, SendError: it is called again, until it succeeds or the worker stops; then the delivery
                goes back.
        """
        ...


class Gate(Protocol):
    """One thing that a run may have to pass."""

    def concerns(self, attempt: Attempt) -> bool:
        """Whether the attempt has to pass here. Cheap: it is asked for every attempt that may have a gate."""
        ...

    async def enter(self, attempt: Attempt) -> Pass | Outcome:
        """Let the attempt in, or say what becomes of it instead.

        A job that was cancelled while it waited (`attempt.cancelled`) enters as well and is not run: a gate that
        only holds runs back answers with a pass that does nothing, or is not concerned.

        Raises:
            StateUnavailable: the state could not be reached; the attempt comes again later.
        """
        ...


class Gates:
    """All gates of one worker, in the order in which they are passed."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    async def enter(self, attempt: Attempt) -> Outcome | None:
        """Give the attempt its passes; otherwise what becomes of it, and it has none.

        Where the state does not answer for two seconds, the attempt is snoozed.
        """
        for pause in _PAUSES:
            try:
                return await self._enter(attempt)
            except StateUnavailable as error:
                _log.warning("job %s waits at a gate: %s", attempt.job_id, error)
                await asyncio.sleep(pause)
        try:
            return await self._enter(attempt)
        except StateUnavailable as error:
            later = random.uniform(*_LATER)
            _log.warning("job %s comes again in %.1f s: %s", attempt.job_id, later, error)
            attempt.is_turned_back = True
            return Snoozed(timedelta(seconds=later))

    async def _enter(self, attempt: Attempt) -> Outcome | None:
        try:
            for gate in self._gates:
                if not gate.concerns(attempt):
                    continue
                answer = await gate.enter(attempt)
                if isinstance(answer, Outcome):
                    attempt.is_turned_back = True
                    # Who let it in has to know the job's end: settling tells that, with the record.
                    if not isinstance(answer, _ENDS):
                        await self._turn_back(attempt, answer)
                    return answer
                if attempt.passes is None:
                    attempt.passes = []
                attempt.passes.append(answer)
        except BaseException:
            await self._turn_back(attempt, Interrupted())
            raise
        return None

    async def _turn_back(self, attempt: Attempt, outcome: Outcome) -> None:
        while attempt.passes:
            try:
                await attempt.passes.pop().leave(outcome, None)
            except (StateUnavailable, SendError) as error:
                _log.warning("job %s: a pass ends by itself: %s", attempt.job_id, error)
