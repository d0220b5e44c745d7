"""Runs that have begun and not ended."""

from typing import Protocol

__all__ = ["StartStore"]


class StartStore(Protocol):
    """Runs that have begun and not ended, by job: how a task that kills its workers is found among those beside it.

    Only runs of messages that were in a worker's hands before are counted here, so the first run of a job costs
    nothing. Where the state cannot be reached the job runs uncounted (fails open): the broker's delivery limit is
    the last net.
    """

    async def begin(self, job_id: str, *, ttl: float) -> int:
        """Count one more run as begun; how many have begun and not ended, this one included.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def end(self, job_id: str) -> None:
        """Forget the job's runs: one of them has ended, whatever its outcome, so they kill no worker.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
