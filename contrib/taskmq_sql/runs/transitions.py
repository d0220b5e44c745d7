"""Transactions of runs: each reads the rows that the state machines need, and writes those that they change.

    lock runs -> read their inboxes -> state machines, in turns -> jobs, child runs, changed rows of all runs

One statement serves all runs of a transaction, except for the rare ones: cancellations and signals.

A run that is advanced alone usually takes one read and one statement (`advance_alone`), because a chain of steps
waits for every round trip to the database. On PostgreSQL it needs no read if this process wrote it last.
"""

import os
from collections.abc import Collection, MutableMapping, Sequence
from typing import Final, cast

import msgspec

from taskmq.contracts.jobs import Advanced, FindHold, MakeJob, NewJob, NewRun, StepOfRun
from taskmq.errors import TaskMQError
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.runs.graphs import RunGraph, load_graph
from taskmq.model.runs.machine import advance as apply_rows
from taskmq.model.runs.records import ChildRun, RunRecord
from taskmq.model.runs.workspace import Need, RowBudget, Transition, Workspace
from taskmq_sql.jobs.values import is_plain
from taskmq_sql.runs.inbox import (
    LoneRun,
    add_timers,
    delete_end,
    delete_rows,
    put_rows,
    read_alone,
    read_inboxes,
    read_record,
    write_answers,
)
from taskmq_sql.runs.known_runs import KnownRuns
from taskmq_sql.runs.places import change_places
from taskmq_sql.runs.quotas import StepQuotas
from taskmq_sql.runs.run_turn import RunTurn
from taskmq_sql.runs.starts import read_run, start
from taskmq_sql.runs.values import meet, write_steps
from taskmq_sql.runs.workflows import change_contents, content_of
from taskmq_sql.steps import (
    JobId,
    Query,
    Steps,
    ask,
    cancel_jobs,
    change_guarded,
    job_id,
    submit_jobs,
    together,
)

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
# A row that has changed since it was read has another `xmin`. One that is locked is not waited for.
_SAVE_LONE: Final = """
update taskmq.run set version = $3, state = $4::smallint, ended = $5::bigint, record = $6::bytea,
  value = coalesce($7::bytea, value)
where id = (select id from taskmq.run where id = $1 and xmin::text = $2{more} for no key update skip locked)
returning id"""
_SAVE_READ: Final = _SAVE_LONE.format(more="")
_SAVE_KNOWN: Final = _SAVE_LONE.format(more=" and (select count(*) from taskmq.run_inbox i where i.run = $1) = 1")
_KEEP: Final = """
insert into taskmq.run_signal (run, name, number, record) @rows(uuid, text, bigint, bytea)"""
_CONSUMED: Final = """
delete from taskmq.run_signal where run = $1 and number = any($2::bigint[]) returning number, record"""


def advance(
    run_ids: Sequence[str], make_job: MakeJob, graphs: Graphs, known_quotas: Quotas, busy: Collection[str] = ()
) -> Steps[dict[str, Advanced]]:
    """Implement `RunStore.advance`.

    Args:
        busy: names of usage that open submissions have added.

    Raises:
        MissingUsage: usage of quotas has no rows yet.
    """
    locked = yield from ask(_LOCK, list(map(JobId, run_ids)))
    if len(locked) < len(run_ids):
        yield from _delete_orphans(set(run_ids) - {job_id(row[0]) for row in locked})
    if not locked:
        return {}
    now = int(locked[0][2])
    quotas = StepQuotas(known_quotas, make_job, now=now, busy=busy)
    runs = [read_run(row[1]) for row in locked]
    inboxes = yield from read_inboxes([run.id for run in runs], _ROWS)
    budget = RowBudget()
    turns: list[RunTurn] = []
    for run in runs:
        graph = yield from load_version(run.version, graphs)
        turns.append(RunTurn(_workspace(run, graph, now, budget, quotas), inboxes[run.id]))
    yield from _run_machines(turns, quotas)
    made = _make_jobs(turns, quotas)
    answers = yield from submit_jobs([job for _, job in made])
    for (turn, job), answer in zip(made, answers, strict=True):
        if not answer.is_new:
            quotas.take_back(job)
        turn.note_submission(job, answer)
    yield from _start_runs(turns)
    for turn in turns:
        if turn.changes.cancelled_jobs:
            turn.asked += yield from cancel_jobs(turn.changes.cancelled_jobs, turn.here.run.cancelled or "")
    changes = yield from _list_changes(turns)
    yield from together([*changes, quotas.write(), Query(_SAVE, tuple(turn.row() for turn in turns))])
    yield from change_contents(
        [
            (turn.version, turn.here.run.version, content)
            for turn in turns
            if (content := turn.changes.content) is not None
        ]
    )
    if places := [change for turn in turns if (change := turn.place_change()) is not None]:
        turns[0].woken += yield from change_places(places)
    return {turn.id: turn.describe() for turn in turns}


def advance_alone(
    run_id: str, make_job: MakeJob, find_hold: FindHold, graphs: Graphs, known: KnownRuns | None = None
) -> Steps[dict[str, Advanced] | None]:
    """Advance one run as `advance` does without quotas, by one read and one change; return None if it takes more.

    If the run's row has changed since it was read, or is locked, nothing is changed. A single new job may be
    dispatched by the same change, so that a step of a chain waits for one round trip less.

    Args:
        known: has the runs that need no read.
    """
    taken = None if known is None else known.take(run_id)
    if (found := taken or (yield from read_alone(run_id))) is None:
        return None
    now, mark, record, inbox = found
    run = read_run(record)
    graph = yield from load_version(run.version, graphs)
    quotas = StepQuotas(Quotas(), make_job, now=now)
    turn = RunTurn(_workspace(run, graph, now, RowBudget(), quotas), inbox)
    yield from _run_machines([turn], quotas)
    made = [job for _, job in _make_jobs([turn], quotas)]
    if not _is_one_change(turn, made):
        return None
    _, _, _, *saved = turn.row()
    changes = yield from _list_changes([turn])
    guard = Query(_SAVE_READ if taken is None else _SAVE_KNOWN, (JobId(run_id), mark, *saved))
    if taken is not None:
        changes += [delete_end(run_id, row.job) for row in turn.events]
    hold = find_hold(made[0]) if len(made) == 1 else None
    answers, turn.batch, mark = yield from change_guarded(guard, changes, made, hold)
    if answers is None:
        return None
    jobs = {job.id: job for job in made}
    for answer in answers:
        turn.note_submission(jobs[answer.id], answer)
    advanced = turn.describe()
    if known is not None and not advanced.has_more and advanced.ended is None:
        known.keep(run_id, LoneRun(now, mark, cast("bytes", saved[3]), inbox), turn.changes.steps.values())
    return {run_id: advanced}


def _is_one_change(turn: RunTurn, jobs: Sequence[NewJob]) -> bool:
    """Return whether one statement can make the changes of a run."""
    changes = turn.changes
    numbers = {row.number for row in turn.events}
    return not (
        turn.refused
        or changes.runs
        or changes.cancelled_jobs
        or changes.content is not None
        or changes.answers.keys() - numbers
        or turn.place_change() is not None
    ) and all(map(is_plain, jobs))


def _list_changes(turns: Sequence[RunTurn]) -> Steps[list[Query]]:
    """Return the changes of runs besides those of their own rows, jobs and child runs."""
    answers: list[tuple[str, str, str]] = []
    for turn in turns:
        answers += yield from _read_answers(turn)
    return [
        write_steps(
            (turn.id, step, turn.changes.values.get(key))
            for turn in turns
            for key, step in turn.changes.steps.items()
        ),
        add_timers((turn.id, timer) for turn in turns for timer in turn.changes.timers),
        write_answers(answers),
        _keep_signals(turns),
        put_rows(row for turn in turns for row in turn.new_rows()),
        delete_rows([address for turn in turns for address in turn.applied_rows()]),
    ]


def _workspace(run: RunRecord, graph: RunGraph, now: int, budget: RowBudget, quotas: StepQuotas) -> Workspace:
    return Workspace(
        run,
        graph,
        now=now,
        new_id=lambda: new_job_id(now, os.urandom(10)),
        budget=budget,
        has_quotas=quotas.are_set,
    )


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


def _run_machines(turns: Sequence[RunTurn], quotas: StepQuotas) -> Steps[None]:
    """Apply rows of each run, reading together what the state machines need."""
    left = [(turn, apply_rows(turn.here, turn.inbox.events)) for turn in turns]
    while left:
        needs: list[tuple[Workspace, Need]] = []
        waiting: list[tuple[RunTurn, Transition[int]]] = []
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


def _keep_signals(turns: Sequence[RunTurn]) -> Query:
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


def _read_answers(turn: RunTurn) -> Steps[list[tuple[str, str, str]]]:
    """Remove consumed signals; return the effects of rows that have a sender: run, id of the sender, effect."""
    answers = turn.changes.answers
    rows = {row.number: row for row in turn.events}
    if consumed := [number for number in answers if number not in rows]:
        for number, record in (yield from ask(_CONSUMED, JobId(turn.id), consumed)):
            rows[number] = read_record(number, record)
    return [(turn.id, row.id, answers[number]) for number, row in rows.items() if row.id]


def _make_jobs(turns: Sequence[RunTurn], quotas: StepQuotas) -> list[tuple[RunTurn, NewJob]]:
    """Build the jobs of steps; a step whose job cannot be built is noted as refused."""
    made: list[tuple[RunTurn, NewJob]] = []
    for turn in turns:
        for job in turn.changes.jobs:
            try:
                new = quotas.make(turn.here.run, job)
            except TaskMQError as error:
                turn.refuse(job.id, job.key, str(error))
            else:
                made.append((turn, msgspec.structs.replace(new, step=StepOfRun(turn.id, *job.key))))
    return made


def _start_runs(turns: Sequence[RunTurn]) -> Steps[None]:
    """Start child runs."""
    children = [(turn, child) for turn in turns for child in turn.changes.runs]
    started = (yield from start([_new_run(turn.here.run, child) for turn, child in children])) if children else []
    for (turn, child), answer in zip(children, started, strict=True):
        if answer.refusal:
            turn.refuse(child.id, child.key, answer.refusal)
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
