"""Jobs as the API shows them: the one place that renders a job.

`status` has the API's original words (`queued`, `running`, `completed`, `failed`), `state` the exact ones.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from taskmq.api.jobs import AttemptView, ErrorView, HistoryView, JobView, ProgressView
from taskmq.app_api.views import instant_text
from taskmq.client.progress import JobProgress
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobRecord
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.model.outcome import ErrorRecord, error_line
from taskmq.model.states import JobState

__all__ = [
    "AttemptView",
    "ErrorView",
    "HistoryView",
    "JobView",
    "attempt_view",
    "history_view",
    "job_view",
    "progress_view",
    "state_named",
    "states_of",
]

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
_ARGUMENTS: Final = ("args", "kwargs")


def job_view(record: JobRecord, name: str, *, words: str | None = None) -> JobView:
    """A job as the API shows it.

    Args:
        name: what the caller calls it.
        words: `claimed` for the words of that kind.
    """
    detail = record.detail
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
        error=_error(record.error),
        summary="" if record.error is None else error_line(record.error.type_name, record.error.message),
        description="" if detail is None else detail.description,
        owner="" if detail is None else detail.owner,
        labels={} if detail is None else dict(detail.labels),
        retry_of="" if detail is None else detail.retry_of,
        retried_as=record.retried_as,
        depends_on=[] if detail is None else list(detail.depends_on),
    )


def states_of(word: str) -> frozenset[JobState] | None:
    """Return the states that a status means, which may be an exact state; None where there is no such word."""
    meant = frozenset(
        state for state, status in _STATUSES.items() if status == word and state is not JobState.UNKNOWN
    )
    return meant or state_named(word)


def state_named(word: str) -> frozenset[JobState] | None:
    """Return the one state of that name; None where there is none."""
    return next((frozenset({state}) for state in _STATUSES if state == word and state is not JobState.UNKNOWN), None)


def status_words() -> list[str]:
    """What can be said as a status."""
    return [word for word in dict.fromkeys([*_STATUSES.values(), *_STATUSES]) if word != "unknown"]


def payload_of(record: JobRecord) -> dict[str, Any]:
    """The arguments of a job's call: `payload` those by name, `args` those by place.

    Arguments that are kept elsewhere because they are large are not fetched: then both are None.
    """
    try:
        envelope = decode_envelope(record.body)
    except MalformedMessage:
        return {"payload": None, "args": None}
    if envelope.blob is not None:
        return {"payload": None, "args": None}
    return {"payload": _plain(envelope.kwargs, {}), "args": _plain(envelope.args, [])}


def log_of(record: JobRecord, history: list[HistoryEntry], attempts: list[AttemptRecord]) -> list[dict[str, Any]]:
    """What is known of a job's course, in the order of time: `log_time`, `log_level`, `log_message`."""
    lines = [(record.submitted, "INFO", "submitted")]
    lines += [(one.at, "INFO", ": ".join(filter(None, (one.kind, one.note)))) for one in history]
    lines += [
        (one.ended, "ERROR", f"attempt {one.attempt} failed: {one.error.type_name}: {one.error.message}")
        for one in attempts
        if one.error is not None
    ]
    starts = {one.attempt: (one.started, one.worker) for one in attempts}
    # One that waits for its next attempt, or has ended meanwhile, shows the start of the last one.
    if starts.get(record.attempt - 1, (None, ""))[0] != record.started:
        starts[record.attempt] = (record.started, record.worker)
    lines += [
        (started, "INFO", f"attempt {number} started at {worker or 'a worker'}")
        for number, (started, worker) in starts.items()
        if started is not None
    ]
    if record.finished is not None:
        lines.append((record.finished, "INFO" if record.error is None else "ERROR", str(record.state)))
    lines.sort(key=lambda line: line[0])
    return [
        {"log_time": instant_text(at), "log_level": level, "log_message": message} for at, level, message in lines
    ]


def retries_of(record: JobRecord, attempts: list[AttemptRecord]) -> list[dict[str, Any]]:
    """List the attempts after the first, by the API's original names: `retry_time` (its begin, or due), and `status`.

    The status is queued, in_progress, completed, failed or cancelled.
    """
    by_number = {one.attempt: one for one in attempts}
    found: list[dict[str, Any]] = []
    for one in attempts:
        retry = by_number.get(one.attempt + 1)
        if retry is not None:
            found.append({"retry_time": instant_text(retry.started), "status": "failed"})
        else:
            has_begun = record.started != one.started and record.started is not None
            at = record.started if has_begun else record.due
            status = "in_progress" if record.state is JobState.RUNNING else _STATUSES[record.state]
            found.append({"retry_time": instant_text(at), "status": status})
    return found


def history_view(entry: HistoryEntry) -> HistoryView:
    """An entry of a job's history as the API shows it."""
    return HistoryView(
        version=entry.version,
        at=instant_text(entry.at),
        kind=entry.kind,
        state=entry.state,
        by=entry.by,
        note=entry.note,
        started=instant_text(entry.started),
    )


def progress_view(progress: JobProgress) -> ProgressView:
    """How far a job is, as the API shows it."""
    return ProgressView(
        done=progress.done,
        total=progress.total,
        note=progress.note,
        attempt=progress.attempt,
        updated_at=instant_text(round(progress.updated.timestamp() * 1000)),
        state=progress.state,
    )


def attempt_view(attempt: AttemptRecord) -> AttemptView:
    """An attempt as the API shows it."""
    return AttemptView(
        attempt=attempt.attempt,
        started=instant_text(attempt.started),
        ended=instant_text(attempt.ended),
        worker=attempt.worker,
        error=_error(attempt.error),
    )


def _error(error: ErrorRecord | None) -> ErrorView | None:
    if error is None:
        return None
    return ErrorView(type=error.type_name, message=error.message, traceback=error.traceback)


def _plain(value: Any, default: Any) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) and bytes(value) else (value or default)
