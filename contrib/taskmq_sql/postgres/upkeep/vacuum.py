"""Vacuum of the tables whose first rows are taken over and over."""

from typing import Final

from taskmq_sql.jobs.tables import SCHEMA
from taskmq_sql.postgres.connections import Connection, Connections

# A statement that takes the first rows of one of these reads the index entries of all rows that were taken since the
# last vacuum. Autovacuum comes once a minute: too rarely for thousands of jobs a second.
_TABLES: Final = ("claim_line", "gated", "ready", "run_inbox", "run_timer", "timer", "upstream_end")
_BETWEEN: Final = 5_000
_MANY: Final = 5_000
# A vacuum reads the whole index, so a long table is vacuumed less often.
_PART: Final = 10
_DEAD: Final = """
select relname, n_live_tup, n_dead_tup from pg_stat_user_tables where schemaname = $1 and relname = any($2::text[])"""


class Vacuum:
    """Vacuums a table once it has 5,000 deleted rows, and a tenth as many as others.

    Deleted rows that an old transaction may still read stay. Such a table is vacuumed again once their number has
    doubled.

    Args:
        between: how many jobs are dispatched between two looks at the statistics.
        many: a table with fewer deleted rows is left to autovacuum.
    """

    def __init__(self, connections: Connections, *, between: int = _BETWEEN, many: int = _MANY) -> None:
        self._connections = connections
        self._between = between
        self._many = many
        self._dispatched = 0
        self._left: dict[str, int] = {}

    def count(self, dispatched: int) -> None:
        """Count dispatched jobs, for the next `run`."""
        self._dispatched += dispatched

    async def run(self) -> None:
        """Vacuum the tables that need it, if enough jobs were dispatched since the last look.

        Raises:
            StoreUnavailable: the database is unavailable, or a vacuum took longer than a minute.
        """
        if self._dispatched >= self._between:
            self._dispatched = 0
            await self._connections.run("statement", self._clean)

    async def _clean(self, connection: Connection) -> None:
        for table, live, dead in await connection.fetch(_DEAD, SCHEMA, _TABLES):
            if dead >= max(self._many, live // _PART, 2 * self._left.get(table, 0)):
                # A vacuum that takes too long is not repeated before there is twice as much to do.
                self._left[table] = dead
                # A locked table is skipped, and the file keeps its length: shortening it would lock out everyone.
                await connection.execute(f"vacuum (skip_locked, truncate false) {SCHEMA}.{table}")
                self._left[table] = await connection.fetchval(
                    "select n_dead_tup from pg_stat_user_tables where schemaname = $1 and relname = $2", SCHEMA, table
                )
