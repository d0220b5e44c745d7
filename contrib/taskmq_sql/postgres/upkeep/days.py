"""The days of the tables that are divided by day: made ahead, dropped when they have been kept for long enough."""

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq_sql.jobs.partitions import DAY, day_of, partition_statements
from taskmq_sql.jobs.tables import BY_DAY, SCHEMA
from taskmq_sql.postgres.connections import Connection

__all__ = ["days_of", "drop_day", "drop_days", "make_days"]

_PATIENCE = "set local lock_timeout = '5s'"
_CONCURRENTLY = 140_000
_DEPENDENT = (
    "delete from taskmq.job_body t using {day} d where d.body is null and t.id = d.id",
    "delete from taskmq.job_detail t using {day} d where t.id = d.id",
    "delete from taskmq.job_key t using {day} d where t.tenant = d.tenant and t.key = d.key and t.id = d.id",
)


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
        for name in await days_of(connection, table):
            if (day_of(name) + 1) * DAY <= before:
                await drop_day(connection, table, name)


async def drop_day(connection: Connection, table: str, name: str) -> None:
    """Drop a day, and what belongs to its jobs."""
    if table == "job_history":
        for statement in _DEPENDENT:
            await connection.execute(statement.format(day=f"{SCHEMA}.{name}"))
    await _detach(connection, f"{SCHEMA}.{table}", f"{SCHEMA}.{name}")
    await connection.execute(f"drop table {SCHEMA}.{name}")


async def _detach(connection: Connection, whole: str, part: str) -> None:
    """Take a day out of its table; lists go on meanwhile where the server can do that (PostgreSQL 14)."""
    if int(await connection.fetchval("show server_version_num")) < _CONCURRENTLY:
        await connection.execute(f"begin;{_PATIENCE};alter table {whole} detach partition {part};commit")
        return
    try:
        await connection.execute(f"alter table {whole} detach partition {part} concurrently")
    except asyncpg.ObjectNotInPrerequisiteStateError:
        # Somebody was stopped in the middle of it.
        await connection.execute(f"alter table {whole} detach partition {part} finalize")
