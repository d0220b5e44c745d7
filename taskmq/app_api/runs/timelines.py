"""Timelines of runs: the waits, attempts and interruptions of the jobs of steps."""

from collections.abc import Sequence
from typing import Final

from taskmq.api.workflows.runs import TimelineAttempt, TimelineInterruption, TimelineJob, TimelineRow
from taskmq.app_api.views import instant_text, view_of
from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobRecord, JobStore, all_attempts
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.runs.graphs import RunGraph
from taskmq.model.runs.records import RunRecord, RunState, StepRecord

_TOGETHER: Final = 200


def ready_times(graph: RunGraph, run: RunRecord, steps: Sequence[StepRecord]) -> dict[str, int | None]:
    """Return for each step when the last of the steps before it ended; None if one has not.

    The first steps are ready when the run begins.
    """
    begun = None if run.state is RunState.QUEUED else run.begun or run.created
    ends = {step.key.name: step.ended for step in steps}
    ready: dict[str, int | None] = {}
    for name in graph.order:
        before = [ends.get(each) for each in graph.upstream[name]]
        ready[name] = None if None in before else max((each for each in before if each), default=begun)
    return ready


async def build_rows(
    store: JobStore, graph: RunGraph, steps: Sequence[StepRecord], ready: dict[str, int | None]
) -> list[TimelineRow]:
    """Return the rows of steps or children, with their jobs."""
    of_jobs = [step for step in steps if graph.step(step.key.name).task]
    jobs = await _read_jobs(store, [job for step in of_jobs for job in step.jobs])
    return [
        TimelineRow(
            step=step.key.name,
            child=step.key.child if step.key.is_child else None,
            kind=graph.step(step.key.name).kind,
            state=step.state.value,
            ready=instant_text(ready[step.key.name]),
            started=instant_text(step.started),
            ended=instant_text(step.ended),
            total=step.total,
            jobs=[jobs[job] for job in step.jobs if job in jobs],
        )
        for step in steps
    ]


async def _read_jobs(store: JobStore, ids: Sequence[str]) -> dict[str, TimelineJob]:
    """Return those of these jobs that the store still has."""
    found: dict[str, TimelineJob] = {}
    for first in range(0, len(ids), _TOGETHER):
        wanted = JobFilter(ids=tuple(ids[first : first + _TOGETHER]))
        for record in (await store.list_jobs(wanted, limit=_TOGETHER)).jobs:
            earlier = await store.attempts(record.id) if record.attempt > 1 else []
            events = await store.events(record.id) if record.token else []
            found[record.id] = _job(record, all_attempts(record, earlier), events)
    return found


def _job(record: JobRecord, attempts: Sequence[AttemptRecord], events: Sequence[HistoryEntry]) -> TimelineJob:
    return TimelineJob(
        job_id=record.id,
        state=record.state,
        submitted_at=instant_text(record.submitted),
        schedule_time=instant_text(record.scheduled_for),
        due_at=instant_text(record.due),
        ended=instant_text(record.finished),
        attempts=[
            view_of(TimelineAttempt, one, started=instant_text(one.started), ended=instant_text(one.ended))
            for one in attempts
        ],
        interruptions=[
            TimelineInterruption(started=instant_text(one.started), at=instant_text(one.at), worker=one.by)
            for one in events
            if one.started is not None
        ],
    )
