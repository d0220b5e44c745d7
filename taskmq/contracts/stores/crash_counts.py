"""Counts of runs that started and did not end."""

from typing import Protocol


class StartStore(Protocol):
    """Runs that started and did not end, by job; they identify a task that crashes its workers.

    Only runs of redelivered messages are counted, so the first run of a job costs nothing. If the state cannot be
    reached the job runs uncounted (fails open): the broker's delivery limit is the last resort.
    """

    async def begin(self, job_id: str, *, ttl: float) -> int:
        """Count one more start; return the number of starts without an end, including this one.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def end(self, job_id: str) -> None:
        """Delete the count of a job: one of its runs ended, whatever its outcome, so they crash no worker.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
