"""Matching of jobs against a filter. Pure."""

from collections.abc import Mapping
from typing import Final

from taskmq.contracts.jobs import JobRecord
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState

_WAITS_FOR_WORKER: Final = frozenset({JobState.QUEUED, JobState.DISPATCHED})


def matches(which: JobFilter, job: JobRecord, *, now: int) -> bool:
    """Return whether the job matches the whole filter at this instant (ms)."""
    return _names_fit(which, job) and _times_fit(which, job) and _rest_fits(which, job, now)


def _names_fit(which: JobFilter, job: JobRecord) -> bool:
    return (
        (which.via or "store") in ("any", job.via)
        and (which.tenant is None or job.tenant == which.tenant)
        and (not which.states or job.state in which.states)
        and (not which.tasks or job.task in which.tasks)
        and job.task.startswith(which.task_prefix)
        and (not which.queues or job.queue in which.queues)
        and (not which.keys or job.key in which.keys)
        and (not which.ids or job.id in which.ids)
    )


def _times_fit(which: JobFilter, job: JobRecord) -> bool:
    return (
        (which.submitted_from is None or job.submitted >= which.submitted_from)
        and (which.submitted_before is None or job.submitted < which.submitted_before)
        and (which.due_from is None or job.due >= which.due_from)
        and (which.due_before is None or job.due < which.due_before)
        and (which.finished_from is None or (job.finished is not None and job.finished >= which.finished_from))
        and (which.finished_before is None or (job.finished is not None and job.finished < which.finished_before))
    )


def _rest_fits(which: JobFilter, job: JobRecord, now: int) -> bool:
    labels: Mapping[str, str] = {} if job.detail is None else job.detail.labels
    return (
        (not which.errors or (job.error is not None and job.error.type_name in which.errors))
        and (which.min_attempt is None or job.attempt >= which.min_attempt)
        and _is_at_least(which.min_ran, job.started, now if job.state is JobState.RUNNING else job.finished)
        and _is_at_least(which.min_waited, job.due, _end_of_wait(job, now))
        and all(labels.get(name) == value for name, value in which.labels)
        and which.wants_retried(job.state) in (None, bool(job.retried_as))
    )


def _end_of_wait(job: JobRecord, now: int) -> int | None:
    starts = (each for each in (job.first_started, job.started) if each is not None and each >= job.due)
    return next(starts, now if job.state in _WAITS_FOR_WORKER else None)


def _is_at_least(span: int | None, begin: int | None, end: int | None) -> bool:
    if span is None:
        return True
    return begin is not None and end is not None and end - begin >= span
