"""Result records for tests."""

from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.model.states import JobState


def success_record(job_id: str, *, value: bytes = b'"done"', attempt: int = 1) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.SUCCEEDED,
        attempt=attempt,
        content_type="application/json",
        value=value,
        started=1_700_000_000_000,
        finished=1_700_000_000_500,
    )


def failure_record(job_id: str) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.FAILED,
        attempt=5,
        error=ErrorRecord(type_name="ValueError", message="no", traceback="here"),
        finished=1_700_000_000_900,
    )


def cancelled_record(job_id: str) -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="suite.task",
        state=JobState.CANCELLED,
        attempt=1,
        error=ErrorRecord(type_name="Ignore", message="ignored by the task", traceback=""),
        finished=1_700_000_000_800,
    )
