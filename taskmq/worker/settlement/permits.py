"""Release of an attempt's permits, before its outcome has an effect."""

import logging

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import SendError, StateUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.outcome import OUTCOME_NAMES, Interrupted, Outcome
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.patience import SettlingPatience

_log = logging.getLogger("taskmq.worker")


async def release_permits(
    attempt: Attempt, outcome: Outcome, record: ResultRecord | None = None, *, patience: SettlingPatience
) -> bool:
    """Release all permits, the last one first.

    Args:
        record: the job's end, if this was it.

    Returns:
        False: the outcome does not count, or no guard could record it; the delivery was returned.
    """
    backoff: Backoff | None = None
    while attempt.permits:
        try:
            counts = await attempt.permits[-1].release(outcome, record)
        except (StateUnavailable, SendError) as error:
            _log.warning("job %s: releasing its permits failed, will retry: %s", attempt.job_id, error)
            backoff = backoff or patience.backoff()
            is_giving_back = isinstance(outcome, Interrupted) and outcome.delay is None
            if is_giving_back or not await patience.pause(backoff.next()):
                attempt.permits = None
                attempt.delivery.requeue()
                return False
            continue
        attempt.permits.pop()
        if not counts:
            _log.warning(
                "job %s of task %s: outcome %s does not count, another run has superseded this one",
                attempt.job_id,
                attempt.envelope.task,
                OUTCOME_NAMES[type(outcome)],
            )
            await release_permits(attempt, Interrupted(), patience=patience)
            attempt.delivery.requeue()
            return False
    return True
