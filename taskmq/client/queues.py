"""The queues of an app: from a name to what stands behind it."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from taskmq.errors import InvalidOption
from taskmq.model.topology import WorkQueue

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
