"""Loading of arguments that a message refers to, before the run."""

import asyncio
import logging
import random
from datetime import timedelta
from typing import Final

from taskmq.client.large_values import LargeArguments
from taskmq.errors import InvalidArguments, StateUnavailable, UnsupportedFeature
from taskmq.model.outcome import Dead, Outcome, Snoozed
from taskmq.worker.attempt import Attempt

_log = logging.getLogger("taskmq.worker")

# Seconds that an attempt waits for a store that does not answer, and then at the broker.
_PAUSES: Final = (0.1, 0.4, 1.5)
_LATER: Final = (5.0, 15.0)


class ArgumentLoader:
    """Loads the arguments that messages refer to.

    Args:
        arguments: where they are stored; None: unknown to this worker.
    """

    def __init__(self, arguments: LargeArguments | None) -> None:
        self._arguments = arguments

    async def load(self, attempt: Attempt) -> Outcome | None:
        """Load the arguments of an attempt; if that fails, return its outcome.

        The job is dead if its arguments are gone or were changed, or if this worker has no store for them. If the
        store does not answer for two seconds, the job is snoozed.
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
        _log.warning("job %s: its arguments are unavailable, will retry in %.1f s: %s", attempt.job_id, later, error)
        attempt.is_turned_back = True
        return Snoozed(timedelta(seconds=later))
