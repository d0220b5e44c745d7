"""Transactions: of callers, which submissions join, and of `taskmq_sql.steps` calls."""

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.errors import UnsupportedFeature
from taskmq.model.units import storable
from taskmq_sql.postgres.connections import Connection, Connections
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.replica import Shown
from taskmq_sql.steps import CLOCK, LIMIT_WAITS, LOCK, LOCK_NAMES, NAMED, NUMBERED, TOGETHER, Query, Row, Steps, Work

T = TypeVar("T")

_NOW: Final = "select taskmq.now_ms()"
# An arbitrary number that only this code uses.
_LOCK: Final = "select pg_advisory_xact_lock(7466004)"
# In the order of the numbers, so that no two transactions wait for each other.
_LOCK_NAMES: Final = """
select pg_advisory_xact_lock(7466004, number)
from (select distinct hashtext(name) as number from unnest($1::text[]) name order by 1) s"""
_LIMIT_WAITS: Final = "set local lock_timeout = '100ms'"
_ROWS: Final = re.compile(r"@rows\(([^)]*)\)")
_VALUE: Final = re.compile(r"\$(\d+)")


async def connection_of(given: Any) -> Connection:
    """Return the asyncpg connection of an `AsyncSession` or `AsyncConnection`, in its transaction, or the one given.

    Raises:
        UnsupportedFeature: the connection is of another kind or uses another driver.
    """
    kind = _kind(given)
    # The import takes 0.3 s. Callers that pass a connection of SQLAlchemy have it.
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy import text
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

        if isinstance(given, AsyncSession):
            given = await given.connection()
        if isinstance(given, AsyncConnection):
            # SQLAlchemy begins the driver's transaction with its first statement.
            await given.execute(text("select 1"))
            given = (await given.get_raw_connection()).driver_connection
            kind += f" over {_kind(given)}"
    if isinstance(given, asyncpg.Connection) or isinstance(getattr(given, "_con", None), asyncpg.Connection):
        return cast("Connection", given)
    raise UnsupportedFeature(
        f"connection={kind} is not supported: pass an AsyncSession or AsyncConnection of SQLAlchemy over asyncpg "
        "(postgresql+asyncpg://...), or a connection of asyncpg, to the store's database. With a synchronous "
        "Session, psycopg or Django's connection, submit after the commit (transaction.on_commit in Django) or write "
        "an outbox, see docs/web.md"
    )


def _kind(given: object) -> str:
    """Return the class with its library, since several libraries have an `AsyncConnection`."""
    kind = type(given)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library == "builtins" else f"{library}.{kind.__qualname__}"


Answers = Mapping[str, Callable[[Connection, Names, Sequence[Any]], Awaitable[Sequence[Row]]]]
"""Answers to queries that are no statements, by their text."""


class PostgresRunner:
    """A `Runner` of calls in PostgreSQL.

    Args:
        reads, writes: connections; there is one for writes, so changes run one after the other.
        shown: connections for reads that nothing decides on.
        names: of the same database.
        answers: to the queries about jobs in the calls that this runner writes.
    """

    def __init__(
        self,
        reads: Connections,
        writes: Connections,
        names: Names,
        answers: Answers = MappingProxyType({}),
        *,
        shown: Shown,
    ) -> None:
        self._shown = shown
        self._reads = reads
        self._writes = writes
        self._names = names
        self._answers = answers

    async def read(self, work: Work[T]) -> T:
        return await self._reads.run("read", lambda connection: drive(connection, work(), self._names))

    async def show(self, work: Work[T]) -> T:
        return await self._shown.run("read", lambda connection: drive(connection, work(), self._names))

    async def write(self, work: Work[T], *, is_lasting: bool = True) -> T:
        return await self._writes.run(
            "transaction" if is_lasting else "unsynced transaction",
            lambda connection: drive(connection, work(), self._names, self._answers),
        )

    async def change(self, work: Work[T], *, is_lasting: bool = True) -> T:
        # Durability costs nothing extra per commit here; statements that can do without set it themselves.
        del is_lasting
        return await self._writes.run(
            "statement", lambda connection: drive(connection, work(), self._names, self._answers)
        )


async def drive(
    connection: Connection,
    steps: Steps[T],
    names: Names | None = None,
    answers: Answers = MappingProxyType({}),
) -> T:
    """Run a call on a connection; return its result.

    Args:
        names: resolves names and numbers for calls that need them.
        answers: to queries about jobs, for calls that have some.
    """
    now: Sequence[Row] = ()
    try:
        query = next(steps)
        while True:
            if query is CLOCK:
                rows = now = now or await connection.fetch(_NOW)
            elif query.text in {NUMBERED, NAMED}:
                assert names is not None
                rows = await _look_up(names, query)
            elif (answer := answers.get(query.text)) is not None:
                assert names is not None
                rows = await answer(connection, names, query.args)
            else:
                rows = await _rows(connection, query)
            query = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


async def _look_up(names: Names, query: Query) -> Sequence[Row]:
    kind, *wanted = cast("tuple[Any, ...]", query.args)
    if query.text == NAMED:
        return list((await names.texts(kind, wanted)).items())
    makes, *wanted = wanted
    return list((await (names.ids if makes else names.find)(kind, wanted)).items())


async def _rows(connection: Connection, query: Query) -> Sequence[Row]:
    if query is LOCK or query is LIMIT_WAITS:
        await connection.execute(_LOCK if query is LOCK else _LIMIT_WAITS)
        return ()
    if query.text == LOCK_NAMES:
        query = Query(_LOCK_NAMES, query.args)
    if query.text == TOGETHER:
        return await fetch_joined(connection, [bind(each) for each in cast("Sequence[Query]", query.args)])
    statement, values = bind(query)
    return await connection.fetch(statement, *values)


async def fetch_joined(connection: Connection, parts: Sequence[tuple[str, Sequence[Any]]]) -> Sequence[Row]:
    """Run statements, each with its values, as one; return the rows of the last one."""
    joined = _join(tuple((statement, len(values)) for statement, values in parts))
    return await connection.fetch(joined, *(value for _, values in parts for value in values))


def bind(query: Query) -> tuple[str, list[Any]]:
    """Return a statement of PostgreSQL with its values."""
    if "@rows" not in query.text:
        return query.text, [_value(each) for each in query.args]
    columns = zip(*cast("Sequence[Row]", query.args), strict=True)
    return _with_columns(query.text), [[_value(each) for each in one] for one in columns]


@cache
def _join(parts: tuple[tuple[str, int], ...]) -> str:
    """Join statements into one; each has its number of values."""
    shifted: list[str] = []
    offset = 0
    for statement, count in parts:
        shifted.append(_VALUE.sub(partial(_shift, offset), statement))
        offset += count
    *others, last = shifted
    if not others:
        return last
    joined = ", ".join(f"part{n} as ({each})" for n, each in enumerate(others))
    # The last statement may have a `with` of its own, which continues this one.
    end = last.lstrip()
    return f"with {joined}, {end.removeprefix('with ')}" if end.startswith("with ") else f"with {joined} {last}"


def _shift(offset: int, value: re.Match[str]) -> str:
    return f"${int(value[1]) + offset}"


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in cast("list[object]", value)]
    # asyncpg accepts no subclass of `str` for a UUID.
    return storable(str(value)) if isinstance(value, str) else value


@cache
def _with_columns(text: str) -> str:
    kinds = _ROWS.search(text)
    assert kinds is not None
    arrays = ", ".join(f"${number}::{kind.strip()}[]" for number, kind in enumerate(kinds[1].split(","), 1))
    return _ROWS.sub(f"select * from unnest({arrays})", text)
