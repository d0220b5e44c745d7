"""Submission, count and cancellation of jobs within the transaction of their run."""

from collections.abc import Sequence
from typing import Any, Final

from taskmq.contracts.jobs import cancellation
from taskmq.model.states import UNDERWAY
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.postgres.changes import change_in
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.quotas import count_queued
from taskmq_sql.postgres.submission import insert_jobs, numbers_of
from taskmq_sql.postgres.transactions import Answers
from taskmq_sql.steps import CANCEL, QUEUED, SUBMIT, Row

_LIVE: Final = """
select id, state, version from taskmq.job where id = any($1::uuid[]) and cancel_requested is null order by id"""


async def _submit(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    answers = await insert_jobs(connection, args, await numbers_of(names, args))
    return [(answer,) for answer in answers]


async def _count_queued(connection: Connection, names: Names, args: Sequence[Any]) -> Sequence[Row]:
    tenant, most = args
    counts = await count_queued(connection, {tenant: most}, await names.ids("tenant", [tenant]))
    return [(counts[tenant],)]


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


ANSWERS: Final[Answers] = {SUBMIT: _submit, QUEUED: _count_queued, CANCEL: _cancel}
"""Answers to the queries of a run about its jobs."""
