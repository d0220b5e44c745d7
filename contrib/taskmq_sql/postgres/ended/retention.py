"""Ended jobs by day, and the tables that deletion covers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import KeptJob
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.partitions import day_of
from taskmq_sql.jobs.tables import SCHEMA
from taskmq_sql.postgres.connections import Connection, Connections
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.records import attempt_records, history_entries, job_records
from taskmq_sql.postgres.statements import JOB_COLUMNS
from taskmq_sql.postgres.upkeep.days import days_of
from taskmq_sql.retention import EndedJobs
from taskmq_sql.steps import Row, Steps, ask

_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_ENDED: Final = f"""
select {JOB_COLUMNS.removesuffix(", body")}, finished, content_type, result, retried_as, processor_ms, peak_memory,
       coalesce(t.body, (select body from taskmq.job_body b where b.id = t.id)) as body,
       (select detail from taskmq.job_detail d where d.id = t.id) as detail
from taskmq.job_history t where ended >= $1 and ended < $2 and id > $3 order by id limit $4"""
_EVENTS: Final = """
select id, version, at, kind, state, actor, note, started from taskmq.event
where id = any($1::uuid[]) order by number"""
_ATTEMPTS: Final = """
select id, attempt, state, started, ended, worker, error_type, error_message, traceback, processor_ms, peak_memory
from taskmq.attempt
where id = any($1::uuid[]) order by attempt, at"""
_KEYS: Final = """
delete from taskmq.job_key k using unnest($1::int[], $2::text[], $3::uuid[]) as i(tenant, key, id)
where k.tenant = i.tenant and k.key = i.key and k.id = i.id"""


def _forget_keys(rows: Sequence[Row]) -> Steps[None]:
    ids, tenants, keys = zip(*rows, strict=True) if rows else ((), (), ())
    yield from ask(_KEYS, list(tenants), list(keys), list(ids))


ENDED_JOBS: Final = EndedJobs(
    (
        "job_body",
        "job_detail",
        "event",
        "attempt",
        "job_progress",
        "saved_value",
        "saved_run",
        "tried_version",
        "claim_line",
    ),
    "error_message",
    _forget_keys,
)
"""The tables with rows of ended jobs."""


async def ended_days(connection: Connection) -> list[int]:
    """Implement `Retaining.ended_days`."""
    return [
        day_of(name)
        for name in await days_of(connection, "job_history")
        if await connection.fetchval(f"select exists (select from {SCHEMA}.{name})")
    ]


async def ended_on(reads: Connections, names: Names, day: int, *, after: str | None, limit: int) -> list[KeptJob]:
    """Implement `Retaining.ended_on`."""

    async def read(connection: Connection) -> tuple[Any, Any, Any]:
        rows = await connection.fetch(_ENDED, day * DAY_MS, (day + 1) * DAY_MS, after or _FIRST, limit)
        ids = [row["id"] for row in rows]
        return rows, await connection.fetch(_EVENTS, ids), await connection.fetch(_ATTEMPTS, ids)

    rows, events, attempts = await reads.run("read", read)
    events_of, attempts_of = _by_job(events), _by_job(attempts)
    return [
        KeptJob(
            job=job,
            events=history_entries(events_of[job.id]),
            attempts=await attempt_records(attempts_of[job.id], names),
        )
        for job in await job_records(rows, names)
    ]


def _by_job(rows: Iterable[Any]) -> defaultdict[str, list[Any]]:
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[str(row["id"])].append(row)
    return found
