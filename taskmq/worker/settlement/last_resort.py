"""An end for jobs whose outcome could not be settled, for a reason that no contract knows.

    settle raises -> the same once more -> as failed, with an error that is plain text -> the same, until it is done

A delivery that went back instead would run again at once, and again, without an end: whatever has failed here would
fail again. So its slot waits, longer each time, and the worker says that it does. Only when the worker stops the
delivery goes back.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from taskmq.durable.service import is_interruption
from taskmq.errors import TaskMQError
from taskmq.model.outcome import OUTCOME_NAMES, Dead, Outcome, type_name
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.error_text import ErrorTexts
from taskmq.worker.settlement.patience import SettlingPatience

__all__ = ["LastResort"]

_log = logging.getLogger("taskmq.worker")

# Tries with the permits that guards gave: whatever fails in theirs must not keep the job from its end.
_WITH_PERMITS: Final = 3


class LastResort:
    """Ends what settling has failed for.

    Attributes:
        waiting: those that have no end yet; each of them has a slot.
    """

    def __init__(self, patience: SettlingPatience, texts: ErrorTexts) -> None:
        self._patience = patience
        self._texts = texts
        self.waiting: set[Attempt] = set()

    async def end(
        self,
        attempt: Attempt,
        outcome: Outcome,
        error: BaseException,
        *,
        settle: Callable[[Attempt, Outcome], Awaitable[object]],
    ) -> None:
        """Return once the job has an end, or its delivery was given back because the worker stops.

        Args:
            outcome: what could not be settled.
            error: why.
        """
        plain = Dead("error", TaskMQError(_words(attempt, outcome, error)))
        backoff = self._patience.backoff()
        tries = 0
        self.waiting.add(attempt)
        try:
            while True:
                tries += 1
                seconds = backoff.next()
                self._say(attempt, outcome, error, seconds)
                if not await self._patience.pause(seconds):
                    attempt.delivery.requeue()
                    return
                if tries > 1:
                    outcome = plain
                if tries > _WITH_PERMITS:
                    attempt.permits = None
                try:
                    await settle(attempt, outcome)
                except BaseException as again:
                    if is_interruption(again):
                        raise
                    error = again
                else:
                    return
        finally:
            self.waiting.discard(attempt)

    def _say(self, attempt: Attempt, outcome: Outcome, error: BaseException, seconds: float) -> None:
        _log.critical(
            "job %s of task %s: its outcome %s could not be settled, which is tried again in %g s\n%s",
            attempt.job_id,
            attempt.envelope.task,
            OUTCOME_NAMES[type(outcome)],
            seconds,
            self._texts.traceback_of(error),
        )


def _words(attempt: Attempt, outcome: Outcome, error: BaseException) -> str:
    return (
        f"attempt {attempt.envelope.attempt} of task {attempt.envelope.task} came to {OUTCOME_NAMES[type(outcome)]}, "
        f"which could not be settled: {type_name(error)}; the worker's log has more"
    )
