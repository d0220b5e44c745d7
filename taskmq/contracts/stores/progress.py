"""Progress of jobs."""

from typing import Protocol

import msgspec

from taskmq.model.states import JobState


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last progress that a job's task reported.

    Attributes:
        done: amount done, in the task's own unit.
        total: total amount; None if the task does not know it.
        note: a few words for people.
        started: start of that run, ms since the epoch by its worker's clock.
        updated: time of the report, by the same clock.
        state: `running`, or the outcome of the run.
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
    """The last progress of each job, for people.

    If the state cannot be reached a job continues without it (fails open); a later report replaces an earlier one
    completely.
    """

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        """Store `record` for `ttl` seconds instead of the job's last one.

        Nothing is changed if the last record is of a run that started later and whose attempt is not lower: that run
        is the present one, and this one was left behind.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...

    async def find(self, job_id: str) -> ProgressRecord | None:
        """Return the job's last record; None if there is none (yet, or any more).

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
