# Generated from taskmq/http/aio/workers.py by `python -m tests.house.blocking_client`: change that one.
"""Running workers, through the server."""

from collections.abc import Sequence

from taskmq.api.workers import ControlBody, ControlledWorkers, WorkerList, WorkerView
from taskmq.http._generated.connection import Calls


class WorkerCalls(Calls):
    """The workers of the server's broker."""

    def list(self, *, within: float = 1.0, max_age: float = 0) -> Sequence[WorkerView]:
        """List the workers that answer within this many seconds.

        Args:
            max_age: the maximum age of the result in seconds.
        """
        query = {"within": within, "max_age": max_age}
        return (self._connection.ask("listWorkers", WorkerList, query=query)).items

    def control(self, what: ControlBody, *, within: float = 1.0) -> ControlledWorkers:
        """Send a command to workers. Returns the answers that arrive within this many seconds."""
        return self._connection.ask("controlWorkers", ControlledWorkers, body=what, query={"within": within})
