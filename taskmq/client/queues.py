"""The queues of an app: from a name to its description, and which of them are paused.

The state records which queues are paused, as it does schedules that are made at run time: a small definition by name,
changed by compare-and-set, for ever until it is taken away. Workers read all of them (`paused_queues`).
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from taskmq.contracts.stores import ScheduleStore
from taskmq.errors import InvalidOption
from taskmq.model.keys import QUEUE_PAUSES
from taskmq.model.topology import WorkQueue

__all__ = ["QueuePause", "Queues", "pause_queue", "paused_queues", "resume_queue"]

# Names may come from calls, so there is no end to them.
_usual = lru_cache(maxsize=1000)(WorkQueue)

_PAGE: Final = 1_000


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


class QueuePause(msgspec.Struct, frozen=True):
    """A pause of a queue.

    Attributes:
        since: ms since the epoch.
        note: why, for people.
        by: who paused it; "": unknown.
    """

    since: int
    note: str = ""
    by: str = ""


_decoder = msgspec.json.Decoder(QueuePause)


async def paused_queues(store: ScheduleStore) -> dict[str, QueuePause]:
    """The queues that are paused, by name.

    Raises:
        StateUnavailable: the state could not be reached.
    """
    return {name: _decoder.decode(kept) for name, kept in (await _definitions(store)).items()}


async def pause_queue(store: ScheduleStore, queue: str, pause: QueuePause) -> QueuePause:
    """Have the queue be paused, and return its pause: one that is paused already keeps its instant.

    Raises:
        StateUnavailable: the state could not be reached; the queue may be paused or not.
    """
    while True:
        before = (await _definitions(store)).get(queue)
        after = pause if before is None else msgspec.structs.replace(pause, since=_decoder.decode(before).since)
        if await store.define(QUEUE_PAUSES, queue, before=before, after=msgspec.json.encode(after)):
            return after


async def resume_queue(store: ScheduleStore, queue: str) -> bool:
    """End the pause of the queue; False where it is not paused.

    Raises:
        StateUnavailable: the state could not be reached; the queue may be paused or not.
    """
    while (before := (await _definitions(store)).get(queue)) is not None:
        if await store.define(QUEUE_PAUSES, queue, before=before, after=None):
            return True
    return False


async def _definitions(store: ScheduleStore) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    place = 0
    while page := await store.changed(QUEUE_PAUSES, place, limit=_PAGE):
        for change in page:
            found.pop(change.name, None)
            if change.definition is not None:
                found[change.name] = change.definition
        place = page[-1].place
    return found
