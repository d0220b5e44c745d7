"""Ended jobs day by day, and what is forgotten of them for good."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import KeptJob
from taskmq.model.jobs.quotas import usage_prefix
from taskmq_sql.jobs.partitions import DAY, day_of
from taskmq_sql.jobs.tables import SCHEMA
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection, Connections
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.records import attempt_records, history_entries, job_records
from taskmq_sql.postgres.statements import JOB_COLUMNS
from taskmq_sql.postgres.upkeep.days import days_of

__all__ = ["ended_days", "ended_on", "forget_ended", "forget_some_of_tenant", "forget_tenant"]

_TOGETHER: Final = 500
_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_ENDED: Final = f"""
select {JOB_COLUMNS.removesuffix(", body")}, finished, content_type, result, retried_as,
       coalesce(t.body, (select body from taskmq.job_body b where b.id = t.id)) as body,
       (select detail from taskmq.job_detail d where d.id = t.id) as detail
from taskmq.job_history t where ended >= $1 and ended < $2 and id > $3 order by id limit $4"""
_EVENTS: Final = """
select id, version, at, kind, state, actor, note, started from taskmq.event
where id = any($1::uuid[]) order by number"""
_ATTEMPTS: Final = """
select id, attempt, started, ended, worker, error_type, error_message, traceback from taskmq.attempt
where id = any($1::uuid[]) order by attempt, at"""
_GONE: Final = "delete from taskmq.job_history where id = any($1::uuid[]) returning id, tenant, key"
_KEYS: Final = """
delete from taskmq.job_key k using unnest($1::int[], $2::text[], $3::uuid[]) as i(tenant, key, id)
where k.tenant = i.tenant and k.key = i.key and k.id = i.id"""
_BESIDE: Final = (
    "delete from taskmq.job_body where id = any($1::uuid[])",
    "delete from taskmq.job_detail where id = any($1::uuid[])",
    "delete from taskmq.event where id = any($1::uuid[])",
    "delete from taskmq.attempt where id = any($1::uuid[])",
)
_TOLD: Final = (
    "delete from taskmq.job_log where job = any($1::text[])",
    "delete from taskmq.run_failure where job = any($1::text[])",
    # One by hand that is open belongs to a user of the node.
    "delete from taskmq.allocation where label = any($1::text[]) and (token is not null or ended is not null)",
)
_DEFINITIONS: Final = (
    "delete from taskmq.definition_version where tenant = $1",
    "delete from taskmq.definition where tenant = $1",
)
# There may be very many: some at a time, so that no caller waits for all of them, and no transaction is that long.
_MANY_OF_TENANT: Final = tuple(
    f"delete from taskmq.{table} where number = any(array("
    f"select number from taskmq.{table} where tenant = $1 order by number limit $2)) returning number"
    for table in ("job_log", "run_failure")
)
_OF_TENANT: Final = (
    "delete from taskmq.rollup where tenant = $1",
    "delete from taskmq.rollup_sum where tenant = $1 and kind = 2",
    "delete from taskmq.allocation where tenant = $1 and ended is not null",
    "delete from taskmq.bulk where tenant = $1 and ended is not null",
    "delete from taskmq.alert_rule where tenant = $1",
    "delete from taskmq.alert where tenant = $1",
    "delete from taskmq.alert_silence where tenant = $1",
    "delete from taskmq.alert_notice where tenant = $1",
)
# In the order in which submissions lock them.
_USAGE: Final = """
delete from taskmq.quota_usage where name in (
    select name from taskmq.quota_usage where starts_with(name, $1) order by name collate "C" for update)"""


async def ended_days(connection: Connection) -> list[int]:
    """What `Retaining.ended_days` does."""
    return [
        day_of(name)
        for name in await days_of(connection, "job_history")
        if await connection.fetchval(f"select exists (select from {SCHEMA}.{name})")
    ]


async def ended_on(reads: Connections, names: Names, day: int, *, after: str | None, limit: int) -> list[KeptJob]:
    """What `Retaining.ended_on` does."""

    async def read(connection: Connection) -> tuple[Any, Any, Any]:
        rows = await connection.fetch(_ENDED, day * DAY, (day + 1) * DAY, after or _FIRST, limit)
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


async def forget_ended(connection: Connection, ids: Sequence[str]) -> int:
    """What `Retaining.forget_ended` does, in the connection's transaction."""
    rows = await connection.fetch(_GONE, [job_id for job_id in ids if is_job_id(job_id)])
    keyed = [row for row in rows if row["key"] is not None]
    await connection.execute(_KEYS, *([row[name] for row in keyed] for name in ("tenant", "key", "id")))
    gone = [row["id"] for row in rows]
    for statement in _BESIDE:
        await connection.execute(statement, gone)
    for statement in _TOLD:
        await connection.execute(statement, list(map(str, gone)))
    return len(gone)


async def forget_some_of_tenant(connection: Connection, tenant: str, limit: int = 1_000) -> bool:
    """Forget up to `limit` of each thing that a tenant may have very many of; whether there may be more."""
    gone = [len(await connection.fetch(statement, tenant, limit)) for statement in _MANY_OF_TENANT]
    return max(gone) == limit


async def forget_tenant(connection: Connection, tenant: str, names: Names) -> None:
    """What `Retaining.forget_tenant` does once `forget_some_of_tenant` has, in the connection's transaction."""
    for number in (await names.find("tenant", [tenant])).values():
        for statement in _DEFINITIONS:
            await connection.execute(statement, number)
    for statement in _OF_TENANT:
        await connection.execute(statement, tenant)
    await connection.execute(_USAGE, usage_prefix(tenant))
