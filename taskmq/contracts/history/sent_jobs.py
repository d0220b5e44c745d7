"""Records of sent jobs, in a job store."""

from collections.abc import Sequence
from typing import Protocol

from taskmq.contracts.jobs.records import AttemptRecord, JobPage, JobRecord
from taskmq.model.history.sent_runs import RecordedJob, RecordedRun, RunReport
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState


class SentJobStore(Protocol):
    """Sent jobs of queues with `record="all"`, with their runs. No scheduler dispatches them.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def add(self, reports: Sequence[RunReport]) -> int:
        """Store runs in one transaction; return the number of jobs that changed.

        Concurrent and repeated calls with the same runs, in any order, lead to the same records
        (`taskmq.model.history.sent_runs.add_run`).
        """
        ...

    async def find(self, name: str) -> RecordedJob | None:
        """Return the record of this id; else of the job of this name that was sent last. None: there is none."""
        ...

    async def page(self, which: JobFilter, *, after: str | None = None, limit: int = 50) -> JobPage:
        """Return up to `limit` jobs as `JobStore.list_jobs` does; `via` of the filter does not matter.

        No sent job has labels, and none is repeated by another job.
        """
        ...

    async def count(self, which: JobFilter, *, cap: int = 10_000) -> int:
        """Count jobs as `JobStore.count_jobs` does."""
        ...

    async def forget_ended(self, ids: Sequence[str]) -> int:
        """Delete those of the jobs that have ended, with their runs, log lines and failures; return their number."""
        ...

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        """Delete up to `limit` jobs that were sent before an instant (ms); return their number."""
        ...


def sent_record(recorded: RecordedJob) -> JobRecord:
    """Return a recorded job in the form of stored ones, without arguments and result."""
    job, last = recorded.job, recorded.last
    starts = [run.started for run in (*recorded.earlier, last) if run.worker]
    return JobRecord(
        id=recorded.id,
        tenant=job.tenant,
        key=recorded.key,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        state=last.state,
        version=recorded.version,
        attempt=last.attempt,
        due=last.due if last.due is not None else job.sent,
        scheduled=job.sent,
        submitted=job.sent,
        started=last.started if last.worker else None,
        finished=last.ended if last.state.is_final else None,
        first_started=min(starts, default=None),
        worker=last.worker,
        error=last.error,
        processor_ms=last.processor_ms,
        via="broker",
    )


def sent_attempts(recorded: RecordedJob) -> list[AttemptRecord]:
    """Return the runs of a recorded job, the earliest first."""
    return [_attempt_of(run) for run in (*recorded.earlier, recorded.last) if run.worker]


def _attempt_of(run: RecordedRun) -> AttemptRecord:
    return AttemptRecord(
        attempt=run.attempt,
        state=JobState.FAILED if run.state is JobState.RETRYING else run.state,
        started=run.started,
        ended=run.ended,
        worker=run.worker,
        error=run.error,
        processor_ms=run.processor_ms,
    )
