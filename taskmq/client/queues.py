"""The queues of an app: from a name to what stands behind it."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from taskmq.errors import InvalidOption
from taskmq.model.topology import WorkQueue
from taskmq.tasks.task import Task

__all__ = ["Queues"]

# Names may come from calls, so there is no end to them.
_usual = lru_cache(maxsize=1000)(WorkQueue)


class Queues:
    """What an app says about its queues.

    Raises:
        InvalidOption: a queue is described twice.
    """

    def __init__(self, described: Iterable[WorkQueue]) -> None:
        self._described: dict[str, WorkQueue] = {}
        for queue in described:
            if queue.name in self._described:
                raise InvalidOption(f"queue {queue.name!r} is described twice")
            self._described[queue.name] = queue

    def __iter__(self) -> Iterator[str]:
        """The names of those that are described."""
        return iter(self._described)

    def named(self, name: str) -> WorkQueue:
        """The queue of that name as it is described, else with the values of `WorkQueue(name)`.

        Raises:
            InvalidOption: a queue cannot be called that.
        """
        return self._described.get(name) or _usual(name)

    def check(self, task: Task[..., Any]) -> None:
        """See whether a task fits the order of its queue.

        Raises:
            InvalidOption: one of the two asks for what the other does not have; names both.
        """
        queue = self.named(task.queue)
        if queue.ordered is None:
            if task.order_key is not None:
                raise InvalidOption(
                    f"task {task.name}: order_key needs an ordered queue, and {queue.name!r} is not: "
                    f"TaskMQ(queues=[WorkQueue({queue.name!r}, ordered=N)])"
                )
            return
        if task.order_key is None:
            raise InvalidOption(f"task {task.name}: its queue {queue.name!r} is ordered, so it needs an order_key=")
        if task.plan.call.priority is not None:
            raise InvalidOption(f"task {task.name}: its queue {queue.name!r} is ordered, so it can have no priority=")
        if task.plan.ack == "early":
            raise InvalidOption(
                f"task {task.name}: its queue {queue.name!r} is ordered; with ack='early' the next job of a key "
                "would begin before this one has ended"
            )
