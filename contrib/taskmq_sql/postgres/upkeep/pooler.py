"""Detection of a pooler that assigns server connections per transaction.

Prepared statements and settings of a connection are lost behind such a pooler. It shows when two of our connections
share one of the server's, or when one of ours uses two of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from taskmq.errors import StoreUnavailable
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.failures import FAILURES

# A pooler with a single server connection, in use by our other connection, does not answer.
_PATIENCE: Final = 3.0
# PgBouncer's error in statement pooling mode.
_NO_TRANSACTIONS: Final = "transaction blocks not allowed"
_PID: Final = "select pg_backend_pid()"


async def is_pooled_by_transaction(connect: Callable[[], Awaitable[Connection]]) -> bool:
    """Whether transactions of one connection run on several server connections.

    Args:
        connect: opens a connection without prepared statements.

    Raises:
        StoreUnavailable: the server is unreachable or the connection was lost.
    """
    first = await connect()
    try:
        second = await connect()
        try:
            return await _share(first, second)
        except FAILURES as error:
            if _NO_TRANSACTIONS in str(error):
                return True
            raise StoreUnavailable(f"the connection to the server was lost: {error}; nothing was changed") from error
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
        with suppress(*FAILURES):
            await second.execute("rollback")


async def _pid_in_transaction(connection: Connection, *, end: str) -> int:
    """Return the pid of the server process that runs the transaction; without `end` the transaction stays open."""
    await connection.execute("begin")
    pid = int(await connection.fetchval(_PID))
    if end:
        await connection.execute(end)
    return pid
