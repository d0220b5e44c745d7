"""A database with tables that one test after the other uses."""

from types import TracebackType
from typing import Final, Self

import psycopg

# The tables that have rows without having been used are copied, in order to fill them again.
_KEEP: Final = """
DO $$
DECLARE
    each record;
BEGIN
    CREATE SCHEMA kept;
    FOR each IN
        SELECT relname FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
    LOOP
        EXECUTE format('CREATE TABLE kept.%1$I AS TABLE {schema}.%1$I', each.relname);
    END LOOP;
END $$
"""
_CLEAR: Final = """
DO $$
DECLARE
    used text;
    each record;
BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        AND state <> 'idle';
    SELECT string_agg(oid::regclass::text, ', ') INTO used FROM pg_class
    WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0;
    EXECUTE 'TRUNCATE ' || used;
    FOR each IN SELECT relname FROM pg_class WHERE relnamespace = 'kept'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('INSERT INTO {schema}.%1$I OVERRIDING SYSTEM VALUE TABLE kept.%1$I', each.relname);
    END LOOP;
END $$
"""


class ReusedTables:
    """The tables of one schema; emptying them costs less than a new database.

    Args:
        url: a database in which only the tables' rows change.
        schema: the schema of the tables.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self._clear = _CLEAR.format(schema=schema)
        self._connection = psycopg.connect(url, autocommit=True)
        # If a test leaves a transaction open, this fails instead of waiting for it.
        self._connection.execute("SET lock_timeout = '10s'")
        self._connection.execute(_KEEP.format(schema=schema).encode())

    def clear(self) -> None:
        """Give each table its first rows again; sequences continue. Idle connections stay open."""
        self._connection.execute(self._clear.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
