"""The caller's own transaction, of which a submission becomes a part."""

from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from taskmq.errors import UnsupportedFeature
from taskmq_sql.postgres.connections import Connection

__all__ = ["connection_of"]


async def connection_of(given: Any) -> Connection:
    """Asyncpg's connection below an `AsyncSession` or `AsyncConnection`, in its transaction; or what asyncpg gave.

    Raises:
        UnsupportedFeature: it is of another kind, or has another driver.
    """
    if isinstance(given, AsyncSession):
        given = await given.connection()
    if isinstance(given, AsyncConnection):
        # SQLAlchemy begins the driver's transaction with the first statement of its own.
        await given.execute(text("select 1"))
        given = (await given.get_raw_connection()).driver_connection
    if isinstance(given, asyncpg.Connection) or isinstance(getattr(given, "_con", None), asyncpg.Connection):
        return cast("Connection", given)
    raise UnsupportedFeature(
        f"connection={type(given).__name__}: jobs are submitted in the transaction of an AsyncSession, an "
        "AsyncConnection or a connection of asyncpg to the store's database"
    )
