"""Versions of the job store's tables in PostgreSQL, by Alembic. (For SQLite files see `sqlite.file.schema`.)

`upgrade` brings a database to the newest version that this code knows; `current` returns its present version.
Nothing else creates or changes tables. A store whose tables are older or newer than the code raises `StoreMismatch`.
Concurrent upgrades of one database run one after the other.

A revision that the previous code can still use sets `understood_by_previous = True`: it only adds tables, or columns
with defaults. Such an upgrade needs no downtime: run it, then replace the processes one by one. The table `setting`
records which older versions of the code may use the tables.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, pool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from taskmq.errors import StoreMismatch
from taskmq_sql.jobs.partitions import partition_statements
from taskmq_sql.jobs.tables import HEAD, SCHEMA, VERSION_TABLE
from taskmq_sql.migrations.views import make_views
from taskmq_sql.postgres.database import encoding_refusal, revision_refusal
from taskmq_sql.urls import address_of, plain_url

__all__ = ["current", "revisions", "upgrade"]

_connect: Final = cast("Callable[..., Awaitable[Any]]", asyncpg.connect)

# An arbitrary number that only this code uses.
_LOCK: Final = 7_466_003
_LOCKED: Final = "55P03"
_TRIES: Final = 12
_PAUSE: Final = 1.0
_HERE: Final = Path(__file__).parent
_WRITE_UNDERSTOOD: Final = f"""
insert into {SCHEMA}.setting (name, value) values ('understood_by', :value)
on conflict (name) do update set value = excluded.value"""


async def upgrade(url: str, revision: str = "head", *, later: Sequence[Path] = (), patience: float = 5.0) -> None:
    """Create the tables or bring them to `revision`, in one transaction.

    An upgrade to the newest version also creates the views for people (`views`).

    Statements that arrive after an upgrade that waits for a table queue up behind it. So the upgrade gives up after
    `patience`, lets the other statements pass, and retries a few times.

    Args:
        url: `postgresql://...`.
        revision: a revision's number; default: the newest one.
        later: folders with revisions after those of this code, for tests.
        patience: seconds to wait for a table in one attempt.

    Raises:
        StoreMismatch: the database's encoding cannot hold every text, or this code does not know the tables' version.
    """

    def work(connection: Connection) -> None:
        _prepare(connection)
        # After the advisory lock: concurrent upgrades wait for that one without a limit.
        connection.execute(text(f"set local lock_timeout = {round(patience * 1000)}"))
        config = _config(later)
        scripts = ScriptDirectory.from_config(config)
        found = _current(connection)
        if found is not None and found not in _numbers(scripts):
            raise StoreMismatch(revision_refusal(address_of(url), found))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        _write_compatible_versions(connection, scripts)
        _make_partitions(connection)
        if _current(connection) == HEAD:
            make_views(connection)

    for left in reversed(range(_TRIES)):
        try:
            await _run(url, work)
        except DBAPIError as error:
            if left == 0 or getattr(error.orig, "sqlstate", None) != _LOCKED:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            return


async def current(url: str) -> str | None:
    """Return the revision of the tables; None if there are no tables."""
    found: list[str | None] = []
    await _run(url, lambda connection: found.append(_current(connection)))
    return found[0]


def revisions() -> list[str]:
    """Return all revisions that this code knows, oldest first."""
    return _numbers(ScriptDirectory.from_config(_config()))


def _numbers(scripts: ScriptDirectory) -> list[str]:
    return [script.revision for script in scripts.walk_revisions()][::-1]


def _current(connection: Connection) -> str | None:
    opts = {"version_table": VERSION_TABLE, "version_table_schema": SCHEMA}
    return MigrationContext.configure(connection, opts=opts).get_current_revision()


def _prepare(connection: Connection) -> None:
    database, encoding = connection.execute(
        text("select current_database(), current_setting('server_encoding')")
    ).one()
    if refusal := encoding_refusal(database, encoding):
        raise StoreMismatch(refusal)
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    known = connection.execute(text("select 1 from pg_namespace where nspname = :name"), {"name": SCHEMA})
    # Checked first: "if not exists" needs the privilege to create schemas even if the schema exists.
    if known.first() is None:
        connection.execute(text(f"create schema {SCHEMA}"))


def _make_partitions(connection: Connection) -> None:
    """Create the missing partitions around today."""
    now = connection.execute(text(f"select {SCHEMA}.now_ms()")).scalar_one()
    known = text("select to_regclass(:name) is not null")
    for name, statements in partition_statements(int(now)).items():
        if not connection.execute(known, {"name": f"{SCHEMA}.{name}"}).scalar_one():
            for statement in statements:
                connection.execute(text(statement))


def _write_compatible_versions(connection: Connection, scripts: ScriptDirectory) -> None:
    understood: list[str] = []
    script = scripts.get_revision(str(_current(connection)))
    while getattr(script.module, "understood_by_previous", False):
        previous = str(script.down_revision)
        understood.append(previous)
        script = scripts.get_revision(previous)
    connection.execute(text(_WRITE_UNDERSTOOD), {"value": " ".join(understood)})


def _config(later: Sequence[Path] = ()) -> Config:
    config = Config()
    config.set_main_option("script_location", _escape_percent(_HERE))
    if later:
        config.set_main_option("path_separator", "newline")
        folders = (_HERE / "versions", *later)
        config.set_main_option("version_locations", "\n".join(_escape_percent(folder) for folder in folders))
    return config


def _escape_percent(path: Path) -> str:
    return str(path).replace("%", "%%")


async def _run(url: str, work: Callable[[Connection], None]) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        # asyncpg parses the URL here as in the store; it may name several hosts.
        async_creator=functools.partial(_connect, plain_url(url)),
        poolclass=pool.NullPool,
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(work)
    finally:
        await engine.dispose()
