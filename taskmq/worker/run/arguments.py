"""Arguments that a message refers to: they are fetched before the run, and what becomes of the job without them."""

import asyncio
import logging
import random
from datetime import timedelta
from typing import Final

from taskmq.client.large_values import LargeArguments
from taskmq.errors import InvalidArguments, StateUnavailable, UnsupportedFeature
from taskmq.model.outcome import Dead, Outcome, Snoozed
from taskmq.worker.attempt import Attempt

__all__ = ["ArgumentLoader"]

_log = logging.getLogger("taskmq.worker")

# How long an attempt waits for a place that does not answer, in seconds, and how long at the broker afterwards.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)


class ArgumentLoader:
    """Gives attempts the arguments that their messages refer to.

    Args:
        arguments: where they are; None: unknown to this worker.
    """

    def __init__(self, arguments: LargeArguments | None) -> None:
        self._arguments = arguments

    async def load(self, attempt: Attempt) -> Outcome | None:
        """Give the attempt its arguments; otherwise what becomes of it.

        It is dead where they are gone or are not what was sent, and where this worker has no place to look in. Where
        the place does not answer for two seconds, it is snoozed.
        """
        if self._arguments is None:
            return Dead(
                "rejected",
                UnsupportedFeature(
                    f"the arguments of job {attempt.job_id} are kept beside the broker: this worker needs the "
                    "results_at= of the app that sent it"
                ),
            )
        for pause in (*_PAUSES, None):
            try:
                attempt.envelope = await self._arguments.load(attempt.envelope, attempt.delivery.content_type)
            except InvalidArguments as error:
                return Dead("invalid_arguments", error)
            except StateUnavailable as error:
                if pause is None:
                    return self._later(attempt, error)
                _log.warning("job %s waits for its arguments: %s", attempt.job_id, error)
                await asyncio.sleep(pause)
            else:
                break
        return None

    def _later(self, attempt: Attempt, error: StateUnavailable) -> Snoozed:
        later = random.uniform(*_LATER)
        _log.warning("job %s comes again in %.1f s, its arguments are out of reach: %s", attempt.job_id, later, error)
        attempt.is_turned_back = True
        return Snoozed(timedelta(seconds=later))
