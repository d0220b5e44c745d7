"""Outages of taskmq's own parts that end a run without a failure of the task. Pure.

The state, the job store, the broker or the store of large values does not answer, and the task's function raises the
error that reports it. The run is interrupted: no attempt is counted, and the job runs again after a pause, from its
checkpoint. The class of the error decides, whatever raised it. An error of the task's own that was raised from it is
a failure, because the task chose it.

An endless outage must not keep a job forever: after `MOST_OUTAGES` interruptions of one attempt the error counts as
any other.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, cast

from taskmq.errors import (
    AccessDenied,
    BrokerBlocked,
    BrokerUnavailable,
    PartlySent,
    PublishUnknown,
    StateUnavailable,
    StoreUnavailable,
)
from taskmq.model import headers as header
from taskmq.model.backoff import backoff_pause
from taskmq.worker.attempt import Attempt

MOST_OUTAGES: Final = 1_000
"""Maximum of interruptions by outages in one attempt: at least eight hours of one outage."""

_FIRST: Final = 1.0
_LONGEST: Final = 60.0
_OUTAGES: Final = (StateUnavailable, StoreUnavailable, BrokerUnavailable, BrokerBlocked, PublishUnknown)


def is_outage(error: BaseException) -> bool:
    """Return whether an error reports that a part of taskmq could not be reached.

    A group, as `asyncio.TaskGroup` raises it, counts if all its errors do; so does a `PartlySent` if all its failures
    do. A broker that refuses this worker's user does not count, because it answered.
    """
    if isinstance(error, BaseExceptionGroup):
        return _are_outages(cast("BaseExceptionGroup[BaseException]", error).exceptions)
    if isinstance(error, PartlySent):
        return _are_outages(error.failures.values())
    return isinstance(error, _OUTAGES) and not isinstance(error, AccessDenied)


def pause_after(outages: int, *, fraction: float) -> timedelta:
    """Return the pause of an interrupted job: up to a second at first, up to a minute later, at least half of that.

    Args:
        outages: number of earlier outages that interrupted the attempt.
        fraction: a random number from 0 to 1.
    """
    longest = backoff_pause(outages + 1, first=_FIRST, longest=_LONGEST)
    return timedelta(seconds=longest * (0.5 + fraction / 2))


def count_outages(attempt: Attempt) -> int:
    """Return the number of outages that interrupted runs of this attempt.

    For a stored job it is in the invitation, for any other in a header; a shard counts its own.
    """
    if attempt.envelope.store is not None:
        return attempt.envelope.store.outages
    count = attempt.delivery.headers.get(header.OUTAGES, 0)
    # Any client may have written the header.
    return max(count if isinstance(count, int) else 0, attempt.outages)


def _are_outages(errors: Iterable[BaseException]) -> bool:
    found = tuple(errors)
    return bool(found) and all(map(is_outage, found))
