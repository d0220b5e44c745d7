"""How far jobs are."""

from typing import Protocol

import msgspec

from taskmq.model.states import JobState

__all__ = ["ProgressRecord", "ProgressStore"]


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a job is, as its task has said last.

    Attributes:
        attempt: that said so.
        done: how much is done, in the task's own unit.
        total: of how much; None when the task does not know.
        note: a few words for people.
        started: when that run began, ms since the epoch by its worker's clock.
        updated: when it said so, by the same clock.
        state: `running`, or what the run came to.
    """

    job_id: str
    attempt: int
    done: float
    total: float | None = None
    note: str = ""
    started: int
    updated: int
    state: JobState = JobState.RUNNING


class ProgressStore(Protocol):
    """The last progress of each job, for people to look at.

    Where the state cannot be reached a job goes on without (fails open); a later report says all that an earlier
    one did.
    """

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        """Keep `record` for `ttl` seconds in the place of the job's last one.

        Nothing is changed where the last one is of a run that began later and whose attempt is not lower: that
        run is the job's, and this one was left behind.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def find(self, job_id: str) -> ProgressRecord | None:
        """The job's last record; None where there is none (yet, or any more).

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
