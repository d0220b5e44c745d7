"""The caller's own transaction, of which a submission becomes a part, and those of `taskmq_sql.identity`."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from taskmq.errors import TaskMQError, UnsupportedFeature
from taskmq.model.units import storable
from taskmq_sql.identity.steps import LOCK, Query, Row, Steps, Work
from taskmq_sql.postgres.connections import Connection, Connections, undone

__all__ = ["PostgresRunner", "connection_of", "drive"]

T = TypeVar("T")

_NOW: Final = "select taskmq.now_ms()"
# Of no meaning, but for being ours.
_LOCK: Final = "select pg_advisory_xact_lock(7466004)"


async def connection_of(given: Any) -> Connection:
    """Return asyncpg's connection below an `AsyncSession` or `AsyncConnection`, in its transaction; or asyncpg's own.

    Raises:
        UnsupportedFeature: it is of another kind, or has another driver.
    """
    kind = _kind(given)
    if isinstance(given, AsyncSession):
        given = await given.connection()
    if isinstance(given, AsyncConnection):
        # SQLAlchemy begins the driver's transaction with the first statement of its own.
        await given.execute(text("select 1"))
        given = (await given.get_raw_connection()).driver_connection
        kind += f" over {_kind(given)}"
    if isinstance(given, asyncpg.Connection) or isinstance(getattr(given, "_con", None), asyncpg.Connection):
        return cast("Connection", given)
    raise UnsupportedFeature(
        f"connection={kind}: jobs are submitted in the transaction of an AsyncSession or AsyncConnection of "
        "SQLAlchemy over asyncpg (postgresql+asyncpg://...), or of a connection of asyncpg, to the store's database. "
        "A synchronous Session, psycopg, asynchronous or not, and Django's connection cannot be used: submit once "
        "the transaction has committed (transaction.on_commit in Django), or write an outbox, see docs/web.md"
    )


def _kind(given: object) -> str:
    """Return the class with its library: several have an `AsyncConnection`."""
    kind = type(given)
    library = kind.__module__.partition(".")[0]
    return kind.__qualname__ if library == "builtins" else f"{library}.{kind.__qualname__}"


class PostgresRunner:
    """A `Runner` of transactions in PostgreSQL.

    Args:
        reads, writes: connections; changes of accounts are few, and wait for each other.
    """

    def __init__(self, reads: Connections, writes: Connections) -> None:
        self._reads = reads
        self._writes = writes

    async def read(self, work: Work[T]) -> T:
        async def read(connection: Connection) -> T:
            return await drive(connection, work(int(await connection.fetchval(_NOW))))

        return await self._reads.run("read", read)

    async def write(self, work: Work[T]) -> T:
        async def write(connection: Connection) -> T | TaskMQError:
            try:
                return await drive(connection, work(int(await connection.fetchval(_NOW))))
            except TaskMQError as error:
                # The connection is as good as before: only the transaction comes to nothing.
                raise undone(error) from error

        result: object = await self._writes.run("transaction", write)
        if isinstance(result, TaskMQError):
            raise result
        return cast("T", result)


async def drive(connection: Connection, steps: Steps[T]) -> T:
    """What a call comes to, on a connection."""
    rows: Sequence[Row] = ()
    try:
        query = next(steps)
        while True:
            rows = await _rows(connection, query)
            query = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


async def _rows(connection: Connection, query: Query) -> Sequence[Row]:
    if query is LOCK:
        await connection.execute(_LOCK)
        return ()
    args: list[Any] = [storable(each) if isinstance(each, str) else each for each in query.args]
    return await connection.fetch(query.text, *args)
