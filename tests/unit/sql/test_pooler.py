"""Detection of a pooler while the server fails in any way."""

from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.errors import StoreUnavailable
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.upkeep.pooler import is_pooled_by_transaction

_FAILURES = [
    OSError("reset"),
    TimeoutError(),
    asyncpg.PostgresError("shutting down"),
    asyncpg.InterfaceError("closed"),
    asyncpg.InternalClientError("cannot switch to state 12"),
]


class _FailingConnection:
    """A connection that fails at one statement and at those after it."""

    def __init__(self, failing: str, error: Exception) -> None:
        self._failing = failing
        self._error = error
        self._has_failed = False
        self.is_terminated = False

    async def execute(self, query: str) -> str:
        return str(await self.fetchval(query))

    async def fetchval(self, query: str) -> Any:
        self._has_failed = self._has_failed or query.startswith(self._failing)
        if self._has_failed:
            raise self._error
        return id(self) % 1000

    def terminate(self) -> None:
        self.is_terminated = True


@pytest.mark.parametrize("failing", ["begin", "select"])
@pytest.mark.parametrize("error", _FAILURES, ids=lambda error: type(error).__name__)
async def test_each_failure_of_the_server_is_an_outage(error: Exception, failing: str) -> None:
    opened: list[_FailingConnection] = []

    async def connect() -> Connection:
        opened.append(_FailingConnection(failing, error))
        return cast("Connection", opened[-1])

    with pytest.raises(StoreUnavailable, match="nothing was changed"):
        await is_pooled_by_transaction(connect)
    assert [each.is_terminated for each in opened] == [True, True]
