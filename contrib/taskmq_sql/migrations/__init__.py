"""The tables of the job store in their versions, by Alembic.

`upgrade` brings a database to the newest version that this code knows, and `current` says which one it has. Nothing
else makes or changes tables: a store whose tables are behind or ahead of the code is refused (`StoreMismatch`).
Several that upgrade one database at the same time do it one after the other.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, make_url, pool, text
from sqlalchemy.engine import URL
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import create_async_engine

from taskmq_sql.jobs.partitions import make_partitions
from taskmq_sql.jobs.tables import SCHEMA, VERSION_TABLE

__all__ = ["current", "upgrade"]

# Of no meaning, but for being ours.
_LOCK: Final = 7_466_003


async def upgrade(url: str, revision: str = "head") -> None:
    """Make the tables, or bring them to `revision`; all of it in one transaction, or nothing.

    Args:
        url: `postgresql://...` or `sqlite:///PATH`.
        revision: a revision's number; default: the newest one.
    """

    def work(connection: Connection) -> None:
        _prepare(connection)
        command.upgrade(_config(connection), revision)
        if connection.dialect.name == "postgresql":
            make_partitions(connection)

    await _run(url, work)


async def current(url: str) -> str | None:
    """The revision of the tables; None where there are none."""
    found: list[str | None] = []

    def work(connection: Connection) -> None:
        schema = None if connection.dialect.name == "sqlite" else SCHEMA
        opts = {"version_table": VERSION_TABLE, "version_table_schema": schema}
        found.append(MigrationContext.configure(connection, opts=opts).get_current_revision())

    await _run(url, work)
    return found[0]


def _prepare(connection: Connection) -> None:
    if connection.dialect.name != "postgresql":
        return
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    known = connection.execute(text("select 1 from pg_namespace where nspname = :name"), {"name": SCHEMA})
    # Asked first: "if not exists" needs the right to make schemas even where there is one.
    if known.first() is None:
        connection.execute(text(f"create schema {SCHEMA}"))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


async def _run(url: str, work: Callable[[Connection], None]) -> None:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        await asyncio.to_thread(_run_sync, parsed.set(drivername="sqlite"), work)
        return
    engine = create_async_engine(parsed.set(drivername="postgresql+asyncpg"), poolclass=pool.NullPool)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(work)
    finally:
        await engine.dispose()


def _run_sync(url: URL, work: Callable[[Connection], None]) -> None:
    # The driver's own transactions leave out what makes tables: begun by hand, they take part.
    engine = create_engine(
        url,
        poolclass=pool.NullPool,
        connect_args={"isolation_level": None},
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )
    listen(engine, "begin", _begin_immediate)
    with engine.begin() as connection:
        work(connection)


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
