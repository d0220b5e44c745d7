"""Transactions of runs: each reads the rows that the state machines need, and writes those that they change.

    lock runs -> read their inboxes -> state machines, in turns -> jobs, child runs, changed rows of all runs

One statement serves all runs of a transaction, except for the rare ones: cancellations and signals.
"""

import os
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import Advanced, Lane, MakeJob, NewJob, NewRun, StepOfRun, Submitted
from taskmq.errors import TaskMQError
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.runs.graphs import RunGraph, load_graph
from taskmq.model.runs.machine import advance as apply_rows
from taskmq.model.runs.machine import has_work
from taskmq.model.runs.records import ChildRun, InboxRow, RunChanges, RunRecord, RunState, StepKey
from taskmq.model.runs.rules import StepState
from taskmq.model.runs.workspace import Need, RowBudget, Transition, Workspace
from taskmq.model.states import JobState
from taskmq_sql.runs.inbox import (
    Inbox,
    add_timers,
    delete_rows,
    put_rows,
    read_inboxes,
    read_record,
    write_answers,
)
from taskmq_sql.runs.places import PlaceChange, change_places
from taskmq_sql.runs.quotas import StepQuotas
from taskmq_sql.runs.starts import RUN_CODES, encode_run, read_run, start
from taskmq_sql.runs.values import meet, write_steps
from taskmq_sql.runs.workflows import change_contents, content_of
from taskmq_sql.steps import JobId, Query, Steps, ask, cancel_jobs, job_id, submit_jobs, together

__all__ = ["Graphs", "advance", "load_version"]

Graphs = MutableMapping[str, RunGraph]
"""Cached graphs by their versions."""

_CACHED: Final = 64
_ROWS: Final = 200
_LOCK: Final = """
select id, record, taskmq.now_ms() from taskmq.run where id = any($1::uuid[]) and state <> 0
order by id for no key update skip locked"""
_EXIST: Final = "select id from taskmq.run where id = any($1::uuid[])"
_ORPHANS: Final = "delete from taskmq.run_inbox where run = any($1::uuid[])"
# The rows exist and are locked.
_SAVE: Final = """
insert into taskmq.run (id, tenant, workflow, version, state, ended, record, value)
@rows(uuid, text, text, text, smallint, bigint, bytea, bytea)
on conflict (id) do update set
  version = excluded.version, state = excluded.state, ended = excluded.ended, record = excluded.record,
  value = coalesce(excluded.value, run.value)"""
_KEEP: Final = """
insert into taskmq.run_signal (run, name, number, record) @rows(uuid, text, bigint, bytea)"""
_CONSUMED: Final = """
delete from taskmq.run_signal where run = $1 and number = any($2::bigint[]) returning number, record"""
_ENDS: Final[dict[RunState, StepState]] = {
    RunState.SUCCEEDED: StepState.SUCCEEDED,
    RunState.FAILED: StepState.FAILED,
    RunState.CANCELLED: StepState.CANCELLED,
}


class _Turn:
    """A run in a transaction.

    Attributes:
        here: the run with its changes.
        applied: number of rows that were applied.
        refused: ends of steps that got no job or no child run.
        version: the run's version before.
    """

    def __init__(self, here: Workspace, inbox: Inbox) -> None:
        self.here: Workspace = here
        self.version: str = here.run.version
        self.inbox: Inbox = inbox
        self.applied = 0
        self.refused: list[InboxRow] = []
        self.lanes: set[Lane] = set()
        self.woken: list[str] = []
        self.asked: list[str] = []
        here.put_steps(inbox.steps)

    @property
    def id(self) -> str:
        """Id of the run."""
        return self.here.run.id

    @property
    def changes(self) -> RunChanges:
        """Changes of the run."""
        return self.here.changes

    @property
    def events(self) -> list[InboxRow]:
        """Rows that were applied."""
        return self.inbox.events[: self.applied]

    @property
    def kept_marks(self) -> int:
        """Number of marks that stay in the inbox."""
        return 1 if has_work(self.here.run) and self.inbox.marks else 0

    def describe(self) -> Advanced:
        """Return the effect of the transaction on the run."""
        run, inbox, changes = self.here.run, self.inbox, self.changes
        return Advanced(
            lanes=frozenset(self.lanes),
            has_more=has_work(run) or self.applied < len(inbox.events) or inbox.is_cut or bool(self.refused),
            ended=run if changes.has_ended else None,
            asked=tuple(self.asked),
            timer=min((each.at for each in changes.timers), default=None),
            woken=(*self.woken, *changes.cancelled_runs, *changes.held_runs),
        )


def advance(
    run_ids: Sequence[str], make_job: MakeJob, graphs: Graphs, known_quotas: Quotas
) -> Steps[dict[str, Advanced]]:
    """Implement `RunStore.advance`.

    Raises:
        MissingUsage: usage of quotas has no rows yet.
    """
    locked = yield from ask(_LOCK, list(map(JobId, run_ids)))
    if len(locked) < len(run_ids):
        yield from _delete_orphans(set(run_ids) - {job_id(row[0]) for row in locked})
    if not locked:
        return {}
    now = int(locked[0][2])
    quotas = StepQuotas(known_quotas, make_job, now=now)
    runs = [read_run(row[1]) for row in locked]
    inboxes = yield from read_inboxes([run.id for run in runs], _ROWS)
    budget = RowBudget()
    turns: list[_Turn] = []
    for run in runs:
        graph = yield from load_version(run.version, graphs)
        here = Workspace(
            run,
            graph,
            now=now,
            new_id=lambda: new_job_id(now, os.urandom(10)),
            budget=budget,
            has_quotas=quotas.are_set,
        )
        turns.append(_Turn(here, inboxes[run.id]))
    yield from _run_machines(turns, quotas)
    yield from _submit(turns, quotas)
    yield from _start_runs(turns)
    for turn in turns:
        if turn.changes.cancelled_jobs:
            turn.asked += yield from cancel_jobs(turn.changes.cancelled_jobs, turn.here.run.cancelled or "")
        if turn.changes.has_ended and turn.here.run.parent:
            turn.woken.append(turn.here.run.parent)
    answers: list[tuple[str, str, str]] = []
    for turn in turns:
        answers += yield from _read_answers(turn)
    yield from together(
        [
            write_steps(
                (turn.id, step, turn.changes.values.get(key))
                for turn in turns
                for key, step in turn.changes.steps.items()
            ),
            add_timers((turn.id, timer) for turn in turns for timer in turn.changes.timers),
            write_answers(answers),
            _keep_signals(turns),
            put_rows(row for turn in turns for row in _new_rows(turn)),
            quotas.write(),
            Query(_SAVE, tuple(map(_row_of, turns))),
            delete_rows([address for turn in turns for address in _applied_rows(turn)]),
        ]
    )
    yield from change_contents(
        [
            (turn.version, turn.here.run.version, content)
            for turn in turns
            if (content := turn.changes.content) is not None
        ]
    )
    if places := [change for turn in turns if (change := _place_change(turn)) is not None]:
        turns[0].woken += yield from change_places(places)
    return {turn.id: turn.describe() for turn in turns}


def _place_change(turn: _Turn) -> PlaceChange | None:
    """Return what the transaction changes of the run's place; None if nothing."""
    run, most = turn.here.run, turn.here.graph.content.max_active_runs
    change = PlaceChange(run, most or 0, leaves=turn.changes.has_ended, waits=run.state is RunState.QUEUED)
    return change if most is not None and not run.parent and (change.leaves or change.waits) else None


def _delete_orphans(run_ids: Collection[str]) -> Steps[None]:
    """Delete the inboxes of runs that do not exist; others are locked."""
    found = yield from ask(_EXIST, [JobId(each) for each in run_ids])
    if missing := set(run_ids) - {job_id(row[0]) for row in found}:
        yield from ask(_ORPHANS, [JobId(each) for each in missing])


def load_version(version: str, graphs: Graphs) -> Steps[RunGraph]:
    """Return the graph of a version that a run has."""
    if version not in graphs:
        text = yield from content_of(version)
        assert text is not None, f"version {version} has no content"
        while len(graphs) >= _CACHED:
            del graphs[next(iter(graphs))]
        graphs[version] = load_graph(text)
    return graphs[version]


def _run_machines(turns: Sequence[_Turn], quotas: StepQuotas) -> Steps[None]:
    """Apply rows of each run, reading together what the state machines need."""
    left = [(turn, apply_rows(turn.here, turn.inbox.events)) for turn in turns]
    while left:
        needs: list[tuple[Workspace, Need]] = []
        waiting: list[tuple[_Turn, Transition[int]]] = []
        for turn, machine in left:
            try:
                need = next(machine)
            except StopIteration as end:
                turn.applied = int(end.value)
                continue
            if need.job is not None:
                turn.here.put_wait((yield from quotas.admit(turn.here.run, need.job, need.pause)))
            needs.append((turn.here, need))
            waiting.append((turn, machine))
        yield from meet(needs)
        left = waiting


def _keep_signals(turns: Sequence[_Turn]) -> Query:
    """Keep the signals that wait for a step."""
    return Query(
        _KEEP,
        tuple(
            (JobId(turn.id), row.name, row.number, msgspec.json.encode(row))
            for turn in turns
            for row in turn.events
            if turn.changes.answers[row.number] == "waiting"
        ),
    )


def _read_answers(turn: _Turn) -> Steps[list[tuple[str, str, str]]]:
    """Remove consumed signals; return the effects of rows that have a sender: run, id of the sender, effect."""
    answers = turn.changes.answers
    rows = {row.number: row for row in turn.events}
    if consumed := [number for number in answers if number not in rows]:
        for number, record in (yield from ask(_CONSUMED, JobId(turn.id), consumed)):
            rows[number] = read_record(number, record)
    return [(turn.id, row.id, answers[number]) for number, row in rows.items() if row.id]


def _submit(turns: Sequence[_Turn], quotas: StepQuotas) -> Steps[None]:
    """Submit jobs of steps."""
    made: list[NewJob] = []
    of: list[tuple[_Turn, StepKey]] = []
    for turn in turns:
        for job in turn.changes.jobs:
            try:
                new = quotas.make(turn.here.run, job)
            except TaskMQError as error:
                turn.refused.append(_failure(job.id, job.key, str(error)))
            else:
                made.append(msgspec.structs.replace(new, step=StepOfRun(turn.id, *job.key)))
                of.append((turn, job.key))
    answers = yield from submit_jobs(made)
    for (turn, key), new, answer in zip(of, made, answers, strict=True):
        if not answer.is_new:
            quotas.take_back(new)
            turn.refused.append(_failure(new.id, key, _describe(answer)))
        elif answer.state is JobState.QUEUED:
            turn.lanes.add(Lane(new.queue, new.priority, new.tenant))


def _describe(answer: Submitted) -> str:
    """Return why a job was not created."""
    if answer.refusal is not None:
        return f"the job depends on job {answer.refusal.id}, and that is {answer.refusal.reason}"
    return f"job {answer.id} exists already and has the job's key"


def _start_runs(turns: Sequence[_Turn]) -> Steps[None]:
    """Start child runs."""
    children = [(turn, child) for turn in turns for child in turn.changes.runs]
    started = (yield from start([_new_run(turn.here.run, child) for turn, child in children])) if children else []
    for (turn, child), answer in zip(children, started, strict=True):
        if answer.refusal:
            turn.refused.append(_failure(child.id, child.key, answer.refusal))
        elif answer.is_new:
            turn.woken.append(answer.id)


def _new_run(parent: RunRecord, child: ChildRun) -> NewRun:
    return NewRun(
        id=child.id,
        tenant=parent.tenant,
        workflow=child.workflow,
        params=child.params,
        labels=parent.labels,
        scheduled_for=parent.scheduled_for,
        parent=parent.id,
        parent_step=child.key.name,
        depth=child.depth,
    )


def _failure(job: str, key: StepKey, reason: str) -> InboxRow:
    return InboxRow(
        number=0, kind="end", job=job, step=key.name, child=key.child, state=StepState.FAILED, error=reason
    )


def _new_rows(turn: _Turn) -> Iterator[tuple[str, InboxRow | None]]:
    """Yield the rows that the run adds to its own inbox, and to those of its child runs and its parent."""
    run, changes = turn.here.run, turn.changes
    for row in turn.refused:
        yield run.id, row
    for child in changes.cancelled_runs:
        yield child, InboxRow(number=0, kind="cancel", error=run.cancelled or "")
    for child in changes.held_runs:
        yield child, _hold_of_child(run)
    if has_work(run) and not turn.kept_marks:
        yield run.id, None
    if changes.has_ended and run.parent:
        yield (
            run.parent,
            InboxRow(
                number=0,
                kind="end",
                step=run.parent_step,
                job=run.id,
                state=_ENDS[run.state],
                value=changes.value or b"null",
                error=run.error or run.cancelled or "",
            ),
        )


def _hold_of_child(run: RunRecord) -> InboxRow:
    """Return the row that passes the hold of a run, or its release, to a child run."""
    if run.hold is None:
        return InboxRow(number=0, kind="release", is_from_above=True)
    reason = run.held_above if run.held is None else f"run {run.id} is held: {run.held}"
    return InboxRow(number=0, kind="hold", error=reason or "", is_from_above=True)


def _row_of(turn: _Turn) -> tuple[object, ...]:
    """Return the row of the run."""
    run = turn.here.run
    state = RUN_CODES[run.state]
    record = encode_run(run)
    return JobId(run.id), run.tenant, run.workflow, run.version, state, run.ended, record, turn.changes.value


def _applied_rows(turn: _Turn) -> list[Any]:
    """Return the addresses of the rows that are no longer needed."""
    return turn.inbox.addresses([row.number for row in turn.events] + turn.inbox.marks[turn.kept_marks :])
