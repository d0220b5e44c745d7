"""Running workers, by the server."""

from collections.abc import Sequence

from taskmq.api.workers import ControlBody, ControlledWorkers, WorkerList, WorkerView
from taskmq.http.aio.connection import AsyncHttpConnection

__all__ = ["AsyncWorkerCalls"]


class AsyncWorkerCalls:
    """The workers at the broker of the server's app."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def list(self, *, within: float = 1.0, max_age: float = 0) -> Sequence[WorkerView]:
        """The workers that answer within so many seconds.

        Args:
            max_age: so many seconds old the answer may be.
        """
        query = {"within": within, "max_age": max_age}
        return (await self._connection.ask("listWorkers", WorkerList, query=query)).items

    async def control(self, what: ControlBody, *, within: float = 1.0) -> ControlledWorkers:
        """Have workers do it, and what they answer within so many seconds."""
        return await self._connection.ask("controlWorkers", ControlledWorkers, body=what, query={"within": within})
