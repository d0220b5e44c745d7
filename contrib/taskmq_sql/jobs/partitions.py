"""Daily partitions of the tables that are partitioned by day: their names, and statements that create them.

An upgrade of the tables creates the first ones, and schedulers create those of later days.
"""

from datetime import UTC, datetime
from typing import Final

from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.tables import BY_DAY, SCHEMA

AHEAD: Final = 7
"""Number of days that are created in advance."""


def partition_statements(now: int) -> dict[str, list[str]]:
    """Return the statements that create the days around `now` (ms since the epoch), by partition name."""
    today = now // DAY_MS
    return {
        _name(table, day): _create_statements(table, day)
        for table in BY_DAY
        for day in range(today - 1, today + AHEAD + 1)
    }


def day_of(name: str) -> int:
    """Return the day since the epoch that a partition covers."""
    date = datetime.strptime(name.rpartition("_")[2], "%Y%m%d").replace(tzinfo=UTC)
    return int(date.timestamp() * 1000) // DAY_MS


def _name(table: str, day: int) -> str:
    return f"{table}_{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y%m%d}"


def _create_statements(table: str, day: int) -> list[str]:
    whole, part = f"{SCHEMA}.{table}", f"{SCHEMA}.{_name(table, day)}"
    return [
        f"create table {part} (like {whole} including defaults including constraints including indexes)",
        f"alter table {whole} attach partition {part} for values from ({day * DAY_MS}) to ({(day + 1) * DAY_MS})",
    ]
