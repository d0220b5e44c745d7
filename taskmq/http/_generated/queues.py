# Generated from taskmq/http/aio/queues.py by `python -m tests.house.blocking_client`: change that one.
"""Queues of the broker, by the server."""

from collections.abc import Sequence

from taskmq.api.queues import (
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
from taskmq.http._generated.connection import HttpConnection

__all__ = ["QueueCalls"]


class QueueCalls:
    """Queues at the broker. Methods raise `QueueMissing`."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def get(self, name: str, *, within: float = 1.0) -> QueueView:
        """Show the facts that broker, state and workers have of a queue.

        Args:
            within: seconds that workers have to answer.
        """
        return self._connection.ask("getQueue", QueueView, path={"name": name}, query={"within": within})

    def pause(self, name: str, *, note: str = "") -> QueuePauseView:
        """Have no worker start anything of it until it is resumed; what runs goes on."""
        body = PauseBody(note=note)
        return self._connection.ask("pauseQueue", QueuePauseView, path={"name": name}, body=body)

    def resume(self, name: str) -> bool:
        """Have workers take from it again; whether it was paused."""
        return (self._connection.ask("resumeQueue", ResumedView, path={"name": name})).was_paused

    def purge(self, name: str) -> int:
        """Delete its waiting messages, in all priority classes; how many they were."""
        body = PurgeBody(name=name)
        return (self._connection.ask("purgeQueue", PurgedView, path={"name": name}, body=body)).purged

    def move(self, name: str, to: str, *, count: int | None = None, task: str | None = None) -> MovedView:
        """Move its waiting messages to another queue; how many, and how many that one cannot take.

        Args:
            count: at most so many.
            task: only those of tasks of this name, with `*` and `?`.
        """
        body = MoveBody(name=name, to=to, count=count, task=task)
        return self._connection.ask("moveMessages", MovedView, path={"name": name}, body=body)

    def list(self, queues: Sequence[str] = (), *, within: float = 1.0) -> QueueLines:
        """List queues in all their priority classes, and their dead-letter queues.

        Args:
            queues: their names, also of single ones at the broker. Default: those of the server's app.
            within: seconds that workers have to answer.
        """
        query = {"names": ",".join(queues) or None, "within": within}
        return self._connection.ask("listQueues", QueueLines, query=query)
