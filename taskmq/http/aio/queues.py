"""Queues of the broker, through the server."""

from collections.abc import Sequence

from taskmq.api.queues import (
    DemandView,
    MoveBody,
    MovedView,
    PauseBody,
    PurgeBody,
    PurgedView,
    QueueLines,
    QueuePauseView,
    QueueView,
    ResumedView,
)
from taskmq.http.aio.connection import AsyncCalls


class AsyncQueueCalls(AsyncCalls):
    """Queues of the broker. Methods raise `QueueMissing`."""

    async def get(self, name: str, *, within: float = 1.0) -> QueueView:
        """Return the details of a queue from the broker, the state and the workers.

        Args:
            within: the time limit for workers' answers, in seconds.
        """
        return await self._connection.ask("getQueue", QueueView, path={"name": name}, query={"within": within})

    async def pause(self, name: str, *, note: str = "") -> QueuePauseView:
        """Stop workers from starting jobs of a queue until it is resumed. Running jobs continue."""
        body = PauseBody(note=note)
        return await self._connection.ask("pauseQueue", QueuePauseView, path={"name": name}, body=body)

    async def resume(self, name: str) -> bool:
        """Resume a queue. Returns whether it was paused."""
        return (await self._connection.ask("resumeQueue", ResumedView, path={"name": name})).was_paused

    async def purge(self, name: str) -> int:
        """Delete the waiting messages of all priority classes. Returns their number."""
        body = PurgeBody(name=name)
        return (await self._connection.ask("purgeQueue", PurgedView, path={"name": name}, body=body)).purged

    async def move(self, name: str, to: str, *, count: int | None = None, task: str | None = None) -> MovedView:
        """Move waiting messages to another queue. Returns how many were moved, and how many it cannot take.

        Args:
            count: the maximum number of messages.
            task: only messages of matching tasks, with `*` and `?`.
        """
        body = MoveBody(name=name, to=to, count=count, task=task)
        return await self._connection.ask("moveMessages", MovedView, path={"name": name}, body=body)

    async def demand(self, name: str) -> DemandView:
        """Count the jobs of a queue that need a slot of a worker now, in the store and at the broker."""
        return await self._connection.ask("getDemand", DemandView, path={"name": name})

    async def list(self, queues: Sequence[str] = (), *, within: float = 1.0) -> QueueLines:
        """List queues with all their priority classes and dead letter queues.

        Args:
            queues: names of queues, also of single RabbitMQ queues. Default: the app's queues.
            within: the time limit for workers' answers, in seconds.
        """
        query = {"names": ",".join(queues) or None, "within": within}
        return await self._connection.ask("listQueues", QueueLines, query=query)
