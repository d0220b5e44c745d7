"""The days of the tables that are divided by day: made ahead, dropped when they have been kept for long enough."""

import asyncio
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq_sql.jobs.partitions import DAY, day_of, partition_statements
from taskmq_sql.jobs.tables import BY_DAY, SCHEMA
from taskmq_sql.postgres.connections import Connection

__all__ = ["days_of", "drop_day", "drop_days", "make_days"]

_PATIENCE: Final = "set local lock_timeout = '5s'"
_CONCURRENTLY: Final = 140_000
# Before PostgreSQL 14 all statements on the table queue behind the one that takes a day out of it while that one
# waits for a reader: it waits briefly, and tries again.
_NO_PATIENCE: Final = "set local lock_timeout = '50ms'"
_TRIES: Final = 60
_PAUSE: Final = 0.5
# Few: each part may read the whole day to find its rows.
_TOGETHER: Final = 50_000
# By keys, a part of the day at a time: joined as a whole, each would read the whole of the other table.
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
# Each is looked for only where some of that time have any: to ask for those that do not exist is half of the work.
_DETAILS: Final = """
with part as materialized (select id from {day} where id > $1 order by id limit $2),
details as (delete from taskmq.job_detail where id = any(array(select id from part where exists (
  select from taskmq.job_detail where id >= (select id from part order by id limit 1)
    and id <= (select id from part order by id desc limit 1)))))
select id from part order by id desc limit 1"""
_HAS_DETAILS: Final = """
select exists (select from taskmq.job_detail
  where id >= (select id from {day} order by id limit 1) and id <= (select id from {day} order by id desc limit 1))"""
_BEFORE_ALL: Final = "00000000-0000-0000-0000-000000000000"


async def make_days(connection: Connection) -> None:
    """Make yesterday, today and the next days where they are not there yet."""
    now = await connection.fetchval(f"select {SCHEMA}.now_ms()")
    known = {name for table in BY_DAY for name in await days_of(connection, table)}
    for name, statements in partition_statements(now).items():
        if name in known:
            continue
        try:
            # Attached, not made in place: that would keep everybody out of the whole table until it is done.
            await connection.execute(f"begin;{_PATIENCE};{';'.join(statements)};commit")
        except (asyncpg.DuplicateTableError, asyncpg.UniqueViolationError, asyncpg.InvalidObjectDefinitionError):
            await connection.execute("rollback")


async def days_of(connection: Connection, table: str) -> list[str]:
    """The days of a table that are there, the earliest first."""
    rows = await connection.fetch(
        "select c.relname::text as name from pg_inherits i join pg_class c on c.oid = i.inhrelid "
        "where i.inhparent = $1::text::regclass order by 1",
        f"{SCHEMA}.{table}",
    )
    return [row["name"] for row in rows]


async def drop_days(connection: Connection, *, before: int) -> None:
    """Drop the days that were over before an instant (ms since the epoch)."""
    for table in BY_DAY:
        for name in await _left_over(connection, table):
            if (day_of(name) + 1) * DAY <= before:
                await _drop(connection, name)
        for name in await days_of(connection, table):
            if (day_of(name) + 1) * DAY <= before:
                await drop_day(connection, table, name)


async def drop_day(connection: Connection, table: str, name: str) -> None:
    """Drop a day, and before it what belongs to its jobs: some at a time, so that no statement waits for it."""
    if table == "job_history":
        day = f"{SCHEMA}.{name}"
        await _in_parts(connection, _KEYS_AND_BODIES.format(day=day))
        if await connection.fetchval(_HAS_DETAILS.format(day=day)):
            await _in_parts(connection, _DETAILS.format(day=day))
    await _detach(connection, f"{SCHEMA}.{table}", f"{SCHEMA}.{name}")
    await _drop(connection, name)


async def _left_over(connection: Connection, table: str) -> list[str]:
    """The days that were taken out of a table and not dropped: the process was killed in between."""
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
    """Take a day out of its table; others go on meanwhile, also where a long reader holds the table."""
    if int(await connection.fetchval("show server_version_num")) < _CONCURRENTLY:
        await _detach_in_between(connection, whole, part)
        return
    try:
        await connection.execute(f"alter table {whole} detach partition {part} concurrently")
    except asyncpg.ObjectNotInPrerequisiteStateError:
        # Another process was stopped in the middle of it.
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
