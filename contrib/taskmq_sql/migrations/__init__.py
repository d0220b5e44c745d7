"""The tables of the job store in PostgreSQL, in their versions, by Alembic. (A SQLite file: `sqlite.file.schema`.)

`upgrade` brings a database to the newest version that this code knows, and `current` says which one it has. Nothing
else makes or changes tables: a store whose tables are behind or ahead of the code is refused (`StoreMismatch`).
Several that upgrade one database at the same time do it one after the other.

A revision whose tables the code before it may go on using says `understood_by_previous = True`: it adds tables, or
columns with defaults. Then an upgrade needs no standstill: run it, and replace the processes one by one. Which older
code may use the tables is written down beside them, in `setting`.
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
from taskmq_sql.jobs.partitions import make_partitions
from taskmq_sql.jobs.tables import HEAD, SCHEMA, VERSION_TABLE
from taskmq_sql.migrations.views import make_views
from taskmq_sql.postgres.database import encoding_refusal, revision_refusal
from taskmq_sql.urls import address_of, plain_url

__all__ = ["current", "revisions", "upgrade"]

_connect: Final = cast("Callable[..., Awaitable[Any]]", asyncpg.connect)

# Of no meaning, but for being ours.
_LOCK: Final = 7_466_003
_LOCKED: Final = "55P03"
_TRIES: Final = 12
_PAUSE: Final = 1.0
_HERE: Final = Path(__file__).parent
_WRITE_UNDERSTOOD: Final = f"""
insert into {SCHEMA}.setting (name, value) values ('understood_by', :value)
on conflict (name) do update set value = excluded.value"""


async def upgrade(url: str, revision: str = "head", *, later: Sequence[Path] = (), patience: float = 5.0) -> None:
    """Make the tables, or bring them to `revision`; all of it in one transaction, or nothing.

    The views for people (`views`) are made with the newest one.

    Behind one that waits for a table all others wait that come later. So it lets them by when a transaction
    does not end, and tries again, some times.

    Args:
        url: `postgresql://...`.
        revision: a revision's number; default: the newest one.
        later: folders with revisions that come after those of this code, for tests of them.
        patience: seconds for which it waits for a table at a time.

    Raises:
        StoreMismatch: the database cannot hold every text, or has tables of a version that this code does not know.
    """

    def work(connection: Connection) -> None:
        _prepare(connection)
        # Behind the lock of several that upgrade: for that one they wait as long as it takes.
        connection.execute(text(f"set local lock_timeout = {round(patience * 1000)}"))
        config = _config(later)
        scripts = ScriptDirectory.from_config(config)
        found = _current(connection)
        if found is not None and found not in _numbers(scripts):
            raise StoreMismatch(revision_refusal(address_of(url), found))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        _write_who_understands(connection, scripts)
        make_partitions(connection)
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
    """The revision of the tables; None where there are none."""
    found: list[str | None] = []
    await _run(url, lambda connection: found.append(_current(connection)))
    return found[0]


def revisions() -> list[str]:
    """All revisions that this code knows, the first one first."""
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
    # Asked first: "if not exists" needs the right to make schemas even where there is one.
    if known.first() is None:
        connection.execute(text(f"create schema {SCHEMA}"))


def _write_who_understands(connection: Connection, scripts: ScriptDirectory) -> None:
    understood: list[str] = []
    script = scripts.get_revision(str(_current(connection)))
    while getattr(script.module, "understood_by_previous", False):
        previous = str(script.down_revision)
        understood.append(previous)
        script = scripts.get_revision(previous)
    connection.execute(text(_WRITE_UNDERSTOOD), {"value": " ".join(understood)})


def _config(later: Sequence[Path] = ()) -> Config:
    config = Config()
    config.set_main_option("script_location", _escaped(_HERE))
    if later:
        config.set_main_option("path_separator", "newline")
        places = (_HERE / "versions", *later)
        config.set_main_option("version_locations", "\n".join(_escaped(place) for place in places))
    return config


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")


async def _run(url: str, work: Callable[[Connection], None]) -> None:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        # asyncpg reads the URL, as for the store itself: it may name several hosts.
        async_creator=functools.partial(_connect, plain_url(url)),
        poolclass=pool.NullPool,
    )
    try:
        async with engine.begin() as connection:
            await connection.run_sync(work)
    finally:
        await engine.dispose()
