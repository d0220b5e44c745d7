"""Whether a pooler before the server gives each transaction another connection.

Statements that are prepared once per connection, and settings that hold for it, are lost then: they are another
connection's. It shows where two connections of ours are one of the server's, or one of ours is two of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.errors import StoreUnavailable
from taskmq_sql.postgres.connections import Connection

__all__ = ["is_pooled_by_transaction"]

# One that has a single connection of the server's, which the other one of ours is using, answers nothing.
_PATIENCE: Final = 3.0
# What PgBouncer says where it pools single statements.
_NO_TRANSACTIONS: Final = "transaction blocks not allowed"
_PID: Final = "select pg_backend_pid()"


async def is_pooled_by_transaction(connect: Callable[[], Awaitable[Connection]]) -> bool:
    """Whether transactions of one connection are done by several of the server's.

    Args:
        connect: makes a connection that prepares nothing by name.

    Raises:
        StoreUnavailable: the server cannot be reached, or was lost.
    """
    first = await connect()
    try:
        second = await connect()
        try:
            return await _share(first, second)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if _NO_TRANSACTIONS in str(error):
                return True
            raise StoreUnavailable(f"the server was lost: {error}; nothing was changed") from error
        finally:
            second.terminate()
    finally:
        first.terminate()


async def _share(first: Connection, second: Connection) -> bool:
    before = await _pid_in_transaction(first, end="commit")
    if await _pid_in_transaction(second, end="") == before:
        return True
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _pid_in_transaction(first, end="commit") != before
    except TimeoutError:
        return True
    finally:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await second.execute("rollback")


async def _pid_in_transaction(connection: Connection, *, end: str) -> int:
    """The process of the server's that does a transaction, which goes on where no `end` is named."""
    await connection.execute("begin")
    pid = int(await connection.fetchval(_PID))
    if end:
        await connection.execute(end)
    return pid
