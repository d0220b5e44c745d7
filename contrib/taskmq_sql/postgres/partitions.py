"""The days of the tables that are divided by day."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, text

from taskmq_sql.jobs.tables import BY_DAY, SCHEMA

__all__ = ["AHEAD", "DAY", "make_partitions", "partition_statements"]

DAY: Final = 86_400_000
AHEAD: Final = 7
"""So many days are made before they come."""


def make_partitions(connection: Connection) -> None:
    """Make those of yesterday, today and the next days that are not there yet."""
    now = connection.execute(text(f"select {SCHEMA}.now_ms()")).scalar_one()
    for statement in partition_statements(int(now)):
        connection.execute(text(statement))


def partition_statements(now: int) -> list[str]:
    """What makes the days around `now` (ms since the epoch), where they are not there yet."""
    today = now // DAY
    return [_made(table, day) for table in BY_DAY for day in range(today - 1, today + AHEAD + 1)]


def _made(table: str, day: int) -> str:
    name = f"{table}_{datetime.fromtimestamp(day * DAY / 1000, UTC):%Y%m%d}"
    return (
        f"create table if not exists {SCHEMA}.{name} partition of {SCHEMA}.{table} "
        f"for values from ({day * DAY}) to ({(day + 1) * DAY})"
    )
