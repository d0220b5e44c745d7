"""Submission, count and cancellation of jobs together with the changes of their run."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, NewJob, Submitted, cancellation
from taskmq.model.states import UNDERWAY
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.postgres.changes import change_in
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.quotas import count_queued
from taskmq_sql.postgres.submission import insert_jobs, insertion, numbers_of
from taskmq_sql.postgres.transactions import Answers, bind, fetch_joined
from taskmq_sql.steps import CANCEL, GUARDED, QUEUED, SUBMIT, Row

_LIVE: Final = """
select id, state, version from taskmq.job where id = any($1::uuid[]) and cancel_requested is null order by id"""
# Fails unless `part0`, the first of the joined statements, changes a row. The server's log has the text of the cast.
_GUARD: Final = """(case when exists (select from part0) then '1'
  else 'taskmq: another scheduler advances this run, which is no fault' end)::int"""
# The mark of the rows that the statement writes.
_MARK: Final = "pg_current_xact_id()::xid::text"
# The commit does not wait for the disk.
_UNSYNCED: Final = f"{_GUARD}, set_config('synchronous_commit', 'off', true)"


async def _submit(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    answers = await insert_jobs(connection, args, await numbers_of(names, args))
    return [(answer,) for answer in answers]


async def _count_queued(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    tenant, most = args
    counts = await count_queued(connection, {tenant: most}, await names.ids("tenant", [tenant]))
    return [(counts[tenant],)]


async def _change_guarded(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    guard, changes, jobs, hold = args
    parts = [bind(each) for each in (guard, *changes)]
    last: tuple[str, Sequence[Any]] = (f"select {_UNSYNCED}, {_MARK}", ())
    if jobs:
        statement, values = insertion(jobs, await numbers_of(names, jobs), may_exist=False, hold=hold)
        # A job may be published only once its dispatch is durable.
        last = (_with_guard(statement, f"{_UNSYNCED if hold is None else _GUARD}, {_MARK}"), values)
    try:
        rows = await fetch_joined(connection, [*parts, last])
    except asyncpg.InvalidTextRepresentationError:
        # If a change was refused instead, the way with a lock raises its error.
        return [(None, None, "")]
    mark = rows[0][-1]
    if not jobs:
        return [([], None, mark)]
    answers = [Submitted(str(row[0]), True, True, STATES[row[1]], 1) for row in rows]
    return [(answers, None if hold is None else _batch_of(jobs[0], rows[0]), mark)]


def _batch_of(job: NewJob, row: Row) -> DispatchBatch | None:
    """Return the batch of a new job; None if the job was not dispatched."""
    _, _, due, token, batch, *_ = row
    if batch is None:
        return None
    dispatched = DispatchedJob(
        id=job.id,
        key=None,
        tenant=job.tenant,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        attempt=1,
        token=token,
        expires=job.expires,
        body=job.body,
        due=due,
        owner="" if job.detail is None else job.detail.owner,
    )
    return DispatchBatch(batch, False, [dispatched])


@cache
def _with_guard(submit: str, guard: str) -> str:
    columns, end, _ = submit.rpartition(" from n")
    return f"{columns}, {guard}{end}"


async def _cancel(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    del names
    reason = args[0]
    left: list[str] = list(args[1:])
    asked: list[Row] = []
    while left:
        rows = await connection.fetch(_LIVE, left)
        left = []
        # In the order of their ids, and without locks before: each change locks the rows of its own job.
        for row in rows:
            job_id, state = str(row["id"]), STATES[row["state"]]
            if await change_in(connection, cancellation(job_id, state, row["version"], reason=reason)) is None:
                left.append(job_id)
            elif state in UNDERWAY:
                asked.append((job_id,))
    return asked


ANSWERS: Final[Answers] = {
    SUBMIT: _submit,
    QUEUED: _count_queued,
    CANCEL: _cancel,
    GUARDED: _change_guarded,
}
"""Answers to the queries of a run about its jobs."""
