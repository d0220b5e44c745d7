"""Transactions of runs: each reads the rows that the state machine needs, and writes those that it changes."""

import os
from collections.abc import MutableMapping, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import Advanced, MakeJob, NewJob, NewRun, Submitted
from taskmq.errors import TaskMQError
from taskmq.model.envelope import new_job_id
from taskmq.model.runs.graphs import RunGraph, load_graph
from taskmq.model.runs.machine import advance as apply_rows
from taskmq.model.runs.machine import has_work
from taskmq.model.runs.records import ChildRun, InboxRow, RunChanges, RunRecord, RunState, StepJob, StepKey
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import Workspace
from taskmq.model.states import JobState
from taskmq_sql.runs.inbox import add_timers, put_rows, read_inbox, read_record, wake, write_answers
from taskmq_sql.runs.starts import RUN_CODES, encode_run, read_run, start
from taskmq_sql.runs.values import meet, write_steps
from taskmq_sql.runs.workflows import content_of
from taskmq_sql.steps import JobId, Query, Steps, ask, cancel_jobs, first, submit_steps, together

__all__ = ["Graphs", "advance", "load_version"]

Graphs = MutableMapping[str, RunGraph]
"""Cached graphs by their versions."""

_CACHED: Final = 64
_ROWS: Final = 200
_LOCK: Final = """
select record, taskmq.now_ms() from taskmq.run where id = $1 and state <> 0 for no key update skip locked"""
_EXISTS: Final = "select 1 from taskmq.run where id = $1"
_ORPHANS: Final = "delete from taskmq.run_inbox where run = $1"
_APPLIED: Final = "delete from taskmq.run_inbox where run = $1 and number = any($2::bigint[])"
_SAVE: Final = """
update taskmq.run set state = $2, ended = $3, record = $4, value = coalesce($5, value) where id = $1"""
_KEEP: Final = """
insert into taskmq.run_signal (run, name, number, record) @rows(uuid, text, bigint, bytea)"""
_CONSUMED: Final = """
delete from taskmq.run_signal where run = $1 and number = any($2::bigint[]) returning number, record"""
_ENDS: Final[dict[RunState, StepState]] = {
    RunState.SUCCEEDED: StepState.SUCCEEDED,
    RunState.FAILED: StepState.FAILED,
    RunState.CANCELLED: StepState.CANCELLED,
}


def advance(run_id: str, make_job: MakeJob, graphs: Graphs) -> Steps[Advanced | None]:
    """Implement `RunStore.advance`."""
    locked = yield from first(_LOCK, JobId(run_id))
    if locked is None:
        if (yield from first(_EXISTS, JobId(run_id))) is None:
            yield from ask(_ORPHANS, JobId(run_id))
        return None
    run = read_run(locked[0])
    graph = yield from load_version(run.version, graphs)
    events, marks, ended = yield from read_inbox(run_id, _ROWS)
    now = int(locked[1])
    here = Workspace(run, graph, now=now, new_id=lambda: new_job_id(now, os.urandom(10)))
    here.put_steps(ended)
    applied = yield from _run_machine(run_id, here, events)
    changes = here.changes
    queues, refused = yield from _submit(run, changes.jobs, make_job)
    woken, others = yield from _start_runs(run, changes.runs)
    refused += others
    asked: list[str] = []
    if changes.cancelled_jobs:
        asked = yield from cancel_jobs(changes.cancelled_jobs, run.cancelled or "")
    if changes.has_ended and run.parent:
        woken.append(run.parent)
    kept = marks[:1] if has_work(run) else []
    done = [row.number for row in events[:applied]] + marks[len(kept) :]
    answers = yield from _read_answers(run_id, events[:applied], changes.answers)
    cancel = InboxRow(number=0, kind="cancel", error=run.cancelled or "")
    yield from together(
        [
            write_steps(run_id, changes.steps, changes.values),
            add_timers(run_id, changes.timers),
            write_answers(run_id, answers),
            _keep_signals(run_id, events[:applied], changes.answers),
            put_rows(run_id, refused),
            *(put_rows(child, [cancel]) for child in changes.cancelled_runs),
            *_save(run, changes),
            Query(_APPLIED, (JobId(run_id), done) if done else ()),
            wake([run_id] if has_work(run) and not kept else []),
        ]
    )
    return Advanced(
        queues=frozenset(queues),
        has_more=has_work(run) or applied < len(events) or len(events) + len(marks) == _ROWS or bool(refused),
        ended=run if changes.has_ended else None,
        asked=tuple(asked),
        timer=min((each.at for each in changes.timers), default=None),
        woken=(*woken, *changes.cancelled_runs),
    )


def load_version(version: str, graphs: Graphs) -> Steps[RunGraph]:
    """Return the graph of a version that a run has."""
    if version not in graphs:
        text = yield from content_of(version)
        assert text is not None, f"version {version} has no content"
        while len(graphs) >= _CACHED:
            del graphs[next(iter(graphs))]
        graphs[version] = load_graph(text)
    return graphs[version]


def _run_machine(run_id: str, here: Workspace, events: Sequence[InboxRow]) -> Steps[int]:
    """Apply rows; return how many were applied."""
    machine = apply_rows(here, events)
    while True:
        try:
            need = next(machine)
        except StopIteration as end:
            return int(end.value)
        yield from meet(run_id, here, need)


def _keep_signals(run_id: str, applied: Sequence[InboxRow], answers: dict[int, str]) -> Query:
    """Keep the signals that wait for a step."""
    return Query(
        _KEEP,
        tuple(
            (JobId(run_id), row.name, row.number, msgspec.json.encode(row))
            for row in applied
            if answers[row.number] == "waiting"
        ),
    )


def _read_answers(run_id: str, applied: Sequence[InboxRow], answers: dict[int, str]) -> Steps[dict[str, str]]:
    """Remove consumed signals; return the effects of rows by the ids of their senders."""
    rows = {row.number: row for row in applied}
    if consumed := [number for number in answers if number not in rows]:
        for number, record in (yield from ask(_CONSUMED, JobId(run_id), consumed)):
            rows[number] = read_record(number, record)
    return {row.id: answers[number] for number, row in rows.items() if row.id}


def _submit(run: RunRecord, jobs: Sequence[StepJob], make_job: MakeJob) -> Steps[tuple[set[str], list[InboxRow]]]:
    """Submit jobs of steps; return queues with new ready jobs, and the ends of steps without a job."""
    made: list[tuple[NewJob, str, int]] = []
    refused: list[InboxRow] = []
    for job in jobs:
        try:
            made.append((make_job(run, job), job.key.name, job.key.child))
        except TaskMQError as error:
            refused.append(_failure(job.id, job.key, str(error)))
    queues: set[str] = set()
    answers = (yield from submit_steps(run.id, made)) if made else []
    for (new, step, child), answer in zip(made, answers, strict=True):
        if not answer.is_new:
            refused.append(_failure(new.id, StepKey(step, child), _describe(answer)))
        elif answer.state is JobState.QUEUED:
            queues.add(new.queue)
    return queues, refused


def _describe(answer: Submitted) -> str:
    """Return why a job was not created."""
    if answer.refusal is not None:
        return f"the job depends on job {answer.refusal.id}, and that is {answer.refusal.reason}"
    return f"job {answer.id} exists already and has the job's key"


def _start_runs(run: RunRecord, children: Sequence[ChildRun]) -> Steps[tuple[list[str], list[InboxRow]]]:
    """Start child runs; return their ids, and the ends of steps without one."""
    if not children:
        return [], []
    new = [
        NewRun(
            id=child.id,
            tenant=run.tenant,
            workflow=child.workflow,
            params=child.params,
            labels=run.labels,
            scheduled_for=run.scheduled_for,
            parent=run.id,
            parent_step=child.key.name,
            depth=child.depth,
        )
        for child in children
    ]
    started = yield from start(new)
    refused = [
        _failure(child.id, child.key, answer.refusal)
        for child, answer in zip(children, started, strict=True)
        if answer.refusal
    ]
    return [answer.id for answer in started if answer.is_new], refused


def _failure(job: str, key: StepKey, reason: str) -> InboxRow:
    return InboxRow(
        number=0, kind="end", job=job, step=key.name, child=key.child, state=StepState.FAILED, error=reason
    )


def _save(run: RunRecord, changes: RunChanges) -> list[Query]:
    """Write the run; if it has ended, send the end to the step that started it."""
    save = Query(_SAVE, (JobId(run.id), RUN_CODES[run.state], run.ended, encode_run(run), changes.value))
    if not changes.has_ended or not run.parent:
        return [save]
    end = InboxRow(
        number=0,
        kind="end",
        step=run.parent_step,
        job=run.id,
        state=_ENDS[run.state],
        value=changes.value or b"null",
        error=run.error or run.cancelled or "",
    )
    return [save, put_rows(run.parent, [end])]
