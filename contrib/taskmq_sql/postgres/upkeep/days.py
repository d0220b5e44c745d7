"""Daily partitions: created in advance, dropped when their retention ends."""

import asyncio
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.partitions import day_of, partition_statements
from taskmq_sql.jobs.tables import BY_DAY, SCHEMA
from taskmq_sql.postgres.connections import Connection

_PATIENCE: Final = "set local lock_timeout = '5s'"
_CONCURRENTLY: Final = 140_000
# Before PostgreSQL 14, detaching a day blocks all statements on the table while it waits for a reader. So it waits
# briefly and tries again.
_NO_PATIENCE: Final = "set local lock_timeout = '50ms'"
_TRIES: Final = 60
_PAUSE: Final = 0.5
# Few: each portion may scan the whole day for its rows.
_TOGETHER: Final = 50_000
# By keys, in portions of the day: a join of the whole day would scan the other table completely.
_KEYS_AND_BODIES: Final = """
with part as materialized (
  select id, tenant, key, body is null as is_large from {day}
  where id > $1 and (key is not null or body is null) order by id limit $2),
keys as (delete from taskmq.job_key where ctid = any(array(
  select k.ctid from part p cross join lateral
    (select ctid from taskmq.job_key where tenant = p.tenant and key = p.key and id = p.id offset 0) k
  where p.key is not null))),
bodies as (delete from taskmq.job_body where id = any(array(select id from part where is_large)))
select id from part order by id desc limit 1"""
_RARE: Final = ("job_detail", "job_progress", "saved_value", "saved_run", "tried_version")
# Runs only if jobs of that time have any: looking for rows that do not exist is half of the work.
_DETAILS: Final = """
with part as materialized (select id from {day} where id > $1 order by id limit $2),
details as (delete from taskmq.{table} where id = any(array(select id from part where exists (
  select from taskmq.{table} where id >= (select id from part order by id limit 1)
    and id <= (select id from part order by id desc limit 1)))))
select id from part order by id desc limit 1"""
_HAS_DETAILS: Final = """
select exists (select from taskmq.{table}
  where id >= (select id from {day} order by id limit 1) and id <= (select id from {day} order by id desc limit 1))"""
_FAILED_UPSTREAM: Final = """
with part as materialized (select id from {day} where state in (9, 10) and id > $1 order by id limit $2),
upstream as (delete from taskmq.failed_dependency where dependent = any(array(select id from part)))
select id from part order by id desc limit 1"""
_BEFORE_ALL: Final = "00000000-0000-0000-0000-000000000000"


async def make_days(connection: Connection) -> None:
    """Create the missing partitions of yesterday, today and the next days."""
    now = await connection.fetchval(f"select {SCHEMA}.now_ms()")
    known = {name for table in BY_DAY for name in await days_of(connection, table)}
    for name, statements in partition_statements(now).items():
        if name in known:
            continue
        try:
            # Attached and not created in place: creation would lock the whole table until it is done.
            await connection.execute(f"begin;{_PATIENCE};{';'.join(statements)};commit")
        except (asyncpg.DuplicateTableError, asyncpg.UniqueViolationError, asyncpg.InvalidObjectDefinitionError):
            await connection.execute("rollback")


async def days_of(connection: Connection, table: str) -> list[str]:
    """Return the existing days of a table, earliest first."""
    rows = await connection.fetch(
        "select c.relname::text as name from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = $1::text::regclass order by 1",
        f"{SCHEMA}.{table}",
    )
    return [row["name"] for row in rows]


async def drop_days(connection: Connection, *, before: int) -> None:
    """Drop the days that ended before an instant (ms since the epoch)."""
    for table in BY_DAY:
        for name in await _find_detached(connection, table):
            if (day_of(name) + 1) * DAY_MS <= before:
                await _drop(connection, name)
        for name in await days_of(connection, table):
            if (day_of(name) + 1) * DAY_MS <= before:
                await drop_day(connection, table, name)


async def drop_day(connection: Connection, table: str, name: str) -> None:
    """Drop a day, after the other rows of its jobs; these go in portions, which keeps statements short."""
    if table == "job_history":
        day = f"{SCHEMA}.{name}"
        await _in_parts(connection, _KEYS_AND_BODIES.format(day=day))
        await _in_parts(connection, _FAILED_UPSTREAM.format(day=day))
        for rare in _RARE:
            if await connection.fetchval(_HAS_DETAILS.format(day=day, table=rare)):
                await _in_parts(connection, _DETAILS.format(day=day, table=rare))
    await _detach(connection, f"{SCHEMA}.{table}", f"{SCHEMA}.{name}")
    await _drop(connection, name)


async def _find_detached(connection: Connection, table: str) -> list[str]:
    """Return days that were detached from a table but not dropped, because the process was killed in between."""
    rows = await connection.fetch(
        "select relname::text as name from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' "
        "and not relispartition and relname ~ $2",
        SCHEMA,
        f"^{table}_[0-9]{{8}}$",
    )
    return [row["name"] for row in rows]


async def _drop(connection: Connection, name: str) -> None:
    await connection.execute(f"drop table if exists {SCHEMA}.{name}")


async def _in_parts(connection: Connection, statement: str) -> None:
    last: object = _BEFORE_ALL
    while last is not None:
        last = await connection.fetchval(statement, last, _TOGETHER)


async def _detach(connection: Connection, whole: str, part: str) -> None:
    """Detach a day from its table without blocking others, even while a long reader holds the table."""
    if int(await connection.fetchval("show server_version_num")) < _CONCURRENTLY:
        await _detach_in_between(connection, whole, part)
        return
    try:
        await connection.execute(f"alter table {whole} detach partition {part} concurrently")
    except asyncpg.ObjectNotInPrerequisiteStateError:
        # Another process was stopped in the middle of detaching.
        await connection.execute(f"alter table {whole} detach partition {part} finalize")


async def _detach_in_between(connection: Connection, whole: str, part: str) -> None:
    for left in reversed(range(_TRIES)):
        try:
            await connection.execute(f"begin;{_NO_PATIENCE};alter table {whole} detach partition {part};commit")
        except asyncpg.LockNotAvailableError:
            await connection.execute("rollback")
            if not left:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return
