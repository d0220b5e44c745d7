"""Views of jobs: the only place that renders a job.

`status` has the API's original words (`queued`, `running`, `completed`, `failed`), `state` the exact ones.
"""

from collections.abc import Mapping
from typing import Final

from taskmq.api.job_requests import PlaceTerms, RetryTerms
from taskmq.api.jobs import AttemptView, ErrorView, HistoryView, JobOptionsView, JobView, ProgressView
from taskmq.app_api.views import instant_text, view_of
from taskmq.client.progress import JobProgress
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobDetail, JobRecord
from taskmq.model.nodes import JobNeeds
from taskmq.model.outcome import ErrorRecord, error_line
from taskmq.model.retry import RunOptions
from taskmq.model.states import JobState

_STATUSES: Final[Mapping[JobState, str]] = {
    JobState.WAITING: "queued",
    JobState.HELD: "queued",
    JobState.SCHEDULED: "queued",
    JobState.QUEUED: "queued",
    JobState.DISPATCHED: "queued",
    JobState.RETRYING: "queued",
    JobState.RUNNING: "running",
    JobState.SUCCEEDED: "completed",
    JobState.FAILED: "failed",
    JobState.EXPIRED: "failed",
    JobState.UPSTREAM_FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.SKIPPED: "cancelled",
    JobState.UNKNOWN: "unknown",
}
_CLAIMED: Final[Mapping[JobState, str]] = {
    **{state: word.upper() for state, word in _STATUSES.items()},
    JobState.DISPATCHED: "CLAIMED",
    JobState.RUNNING: "PROCESSING",
}


def job_view(record: JobRecord, name: str, *, words: str | None = None) -> JobView:
    """Build the API's view of a job.

    Args:
        name: the job's id for the caller.
        words: `claimed` for that vocabulary of statuses.
    """
    detail, failure = record.detail, record.failure
    return JobView(
        job_id=name,
        id=record.id,
        status=(_CLAIMED if words == "claimed" else _STATUSES)[record.state],
        state=record.state,
        job_type=record.task,
        task=record.task,
        queue=record.queue,
        priority=record.priority,
        tenant=record.tenant,
        schedule_time=instant_text(record.scheduled_for),
        due_at=instant_text(record.due),
        start_time=instant_text(record.started),
        end_time=instant_text(record.finished),
        first_start_time=instant_text(record.first_started),
        submitted_at=instant_text(record.submitted),
        expires_at=instant_text(record.expires),
        retries=max(record.attempt - 1, 0),
        attempt=record.attempt,
        version=record.version,
        worker=record.worker,
        cancel_requested=record.cancel_requested,
        error=_error(failure),
        summary=record.suspension if failure is None else error_line(failure.type_name, failure.message),
        description="" if detail is None else detail.description,
        owner="" if detail is None else detail.owner,
        labels={} if detail is None else dict(detail.labels),
        retry_of="" if detail is None else detail.retry_of,
        retried_as=record.retried_as,
        depends_on=[] if detail is None else list(detail.depends_on),
        via=record.via,
    )


def options_view(run: RunOptions, detail: JobDetail) -> JobOptionsView:
    """Build the API's view of a job's own options."""
    needs = detail.needs or JobNeeds()
    retry = RetryTerms(backoff=run.backoff, base=_seconds(run.base), cap=_seconds(run.cap), jitter=run.jitter)
    place = PlaceTerms(
        labels=needs.labels,
        prefers=needs.prefers,
        patience=needs.patience if needs.prefers else None,
        gang=(needs.gang, needs.gang_size) if needs.gang else None,
    )
    return JobOptionsView(
        timeout=_seconds(run.timeout),
        max_attempts=run.max_attempts,
        retry=None if retry == RetryTerms() else retry,
        guarantee="at_most_once" if run.once else None,
        resources=needs.resources,
        place=None if place == PlaceTerms() else place,
        preemptible=detail.preemptible,
    )


def status_of(state: JobState) -> str:
    """Return the API's original word for a state."""
    return _STATUSES[state]


def states_of(word: str) -> frozenset[JobState] | None:
    """Return the states of a status, which may be an exact state; None for an unknown word."""
    meant = frozenset(
        state for state, status in _STATUSES.items() if status == word and state is not JobState.UNKNOWN
    )
    return meant or state_named(word)


def state_named(word: str) -> frozenset[JobState] | None:
    """Return the single state of that name; None if it is unknown."""
    return next((frozenset({state}) for state in _STATUSES if state == word and state is not JobState.UNKNOWN), None)


def status_words() -> list[str]:
    """List the words accepted as a status."""
    return [word for word in dict.fromkeys([*_STATUSES.values(), *_STATUSES]) if word != "unknown"]


def history_view(entry: HistoryEntry) -> HistoryView:
    """Build the API's view of an entry of a job's history."""
    return view_of(HistoryView, entry, at=instant_text(entry.at), started=instant_text(entry.started))


def progress_view(progress: JobProgress) -> ProgressView:
    """Build the API's view of a job's progress."""
    return view_of(ProgressView, progress, updated_at=instant_text(round(progress.updated.timestamp() * 1000)))


def attempt_view(attempt: AttemptRecord, app_version: str) -> AttemptView:
    """Build the API's view of an attempt that this version of the app ran."""
    return view_of(
        AttemptView,
        attempt,
        started=instant_text(attempt.started),
        ended=instant_text(attempt.ended),
        app_version=app_version,
        processor_seconds=_seconds(attempt.processor_ms),
        error=_error(attempt.error),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _error(error: ErrorRecord | None) -> ErrorView | None:
    if error is None:
        return None
    return ErrorView(type=error.type_name, message=error.message, traceback=error.traceback)
