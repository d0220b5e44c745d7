"""Last resort: an end for jobs whose outcome could not be settled because of an unexpected failure.

    settle raises -> repeated once -> as failed, with an error that is plain text -> repeated until it succeeds

A returned delivery would run again immediately, in an endless loop, because the failure would recur. So its slot
waits, longer each time, and the worker logs it. The delivery is returned only when the worker stops.
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

_log = logging.getLogger("taskmq.worker")

# Attempts with the guards' permits: their failures must not keep the job from its end.
_WITH_PERMITS: Final = 3


class LastResort:
    """Ends jobs whose settlement failed.

    Attributes:
        waiting: attempts without an end; each occupies a slot.
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
        """Return once the job has an end, or its delivery was returned because the worker stops.

        Args:
            outcome: the outcome that could not be settled.
            error: the reason.
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
            "job %s of task %s: settling its outcome %s failed, will retry in %g s\n%s",
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
