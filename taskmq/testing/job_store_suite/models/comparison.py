"""Comparison of a store with the model after a step of a random history."""

from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    HistoryEntry,
    JobRecord,
)
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store_suite.driver import JobDriver

_OPERATORS: Final = frozenset({"change", "cancel", "cancel_requested", "hold", "release", "retry"})
# Measured by the store's clock, which the model reads a moment earlier.
_TIMES: Final = ("due", "submitted", "dispatched", "finished")
_A_MOMENT: Final = 60_000


async def compare_job(model: JobModel, reader: JobDriver, job_id: str) -> None:
    """Compare a job with its events and attempts; the model adopts what the contract leaves open."""
    known, seen = model.jobs.get(job_id), await reader.store.get(job_id)
    if known is None or seen is None:
        assert known is seen, f"{job_id}: {seen} instead of {known}"
        return
    # A store may write once for two reports applied together.
    assert seen.version <= known.version, f"{seen} instead of {known}"
    adopted = replace(known, version=seen.version, **_undefined_fields(known, seen))
    for name in _TIMES:
        known_time, seen_time = getattr(known, name), getattr(seen, name)
        assert (known_time is None) is (seen_time is None), f"{name} of {seen} instead of {known}"
        if known_time is not None:
            assert abs(known_time - seen_time) <= _A_MOMENT or _is_due_undefined(known, name), (
                f"{name} of {seen}, not {known}"
            )
            adopted = replace(adopted, **{name: seen_time})
    assert seen == adopted, f"{seen} instead of {adopted}"
    model.jobs[job_id] = seen
    events = [_event_facts(event) for event in await reader.store.events(job_id) if event.kind in _OPERATORS]
    assert events == [_event_facts(event) for event in model.events(job_id) if event.kind in _OPERATORS]
    attempts = [attempt.attempt for attempt in await reader.store.attempts(job_id)]
    assert attempts == [attempt.attempt for attempt in model.attempts(job_id)]


async def compare_list(model: JobModel, reader: JobDriver, which: JobFilter) -> None:
    """Compare the number of matching jobs, and the first page of them."""
    expected = [job.id for job in model.list_jobs(which, limit=10_000).jobs]
    assert await reader.store.count_jobs(which) == len(expected), which
    page = await reader.store.list_jobs(which, limit=5)
    if not page.is_bounded:
        assert [job.id for job in page.jobs] == expected[:5], which
        assert (page.after is None) is (len(expected) <= 5), which


def _undefined_fields(known: JobRecord, seen: JobRecord) -> dict[str, Any]:
    """Return the fields that the contract leaves open in this state, as observed."""
    fields: dict[str, Any] = {}
    if known.state not in TERMINAL and known.state is not JobState.RUNNING:
        fields["started"] = seen.started
    if known.state in (JobState.EXPIRED, JobState.CANCELLED, JobState.FAILED) and known.error != seen.error:
        is_reason = known.error is None or not known.error.type_name
        if is_reason or known.cancel_requested is not None:
            fields["error"] = seen.error
    if known.state not in TERMINAL and known.state is not JobState.RETRYING:
        fields["error"] = seen.error
    return fields


def _is_due_undefined(known: JobRecord, name: str) -> bool:
    """Return whether the contract lets a requeued job keep its due time or get the current one."""
    return name == "due" and known.state is JobState.QUEUED


def _event_facts(event: HistoryEntry) -> tuple[Any, ...]:
    return event.kind, event.state, event.by, event.note
