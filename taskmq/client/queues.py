"""The queues of an app by name, and their pauses."""

import secrets
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.stores import ScheduleStore
from taskmq.errors import InvalidOption
from taskmq.model.commands import QUEUES, Command, QueuePause, command_topic, encode_command
from taskmq.model.keys import QUEUE_PAUSES
from taskmq.model.topology import WorkQueue

# Bounded, because names may come from callers.
_default_queue = lru_cache(maxsize=1000)(WorkQueue)

_PAGE: Final = 1_000

_decoder = msgspec.json.Decoder(QueuePause)


class Queues:
    """The queue descriptions of an app.

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
        """Iterate over the names of the described queues."""
        return iter(self._described)

    def get(self, name: str) -> WorkQueue:
        """Return the queue of that name as described, or with the defaults of `WorkQueue(name)`.

        Raises:
            InvalidOption: the queue name is invalid.
        """
        return self._described.get(name) or _default_queue(name)


class StatePauses:
    """A `PauseStore` in the state: one definition for each paused queue."""

    def __init__(self, store: ScheduleStore) -> None:
        self._store = store

    async def queue_pauses(self) -> dict[str, QueuePause]:
        """See `PauseStore.queue_pauses`."""
        return {name: _decoder.decode(found) for name, found in (await self._definitions()).items()}

    async def pause_queue(self, queue: str, pause: QueuePause) -> QueuePause:
        """See `PauseStore.pause_queue`."""
        while True:
            before = (await self._definitions()).get(queue)
            after = pause if before is None else msgspec.structs.replace(pause, since=_decoder.decode(before).since)
            if await self._store.define(QUEUE_PAUSES, queue, before=before, after=msgspec.json.encode(after)):
                return after

    async def resume_queue(self, queue: str) -> bool:
        """See `PauseStore.resume_queue`."""
        while (before := (await self._definitions()).get(queue)) is not None:
            if await self._store.define(QUEUE_PAUSES, queue, before=before, after=None):
                return True
        return False

    async def _definitions(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        cursor = 0
        while page := await self._store.list_changed(QUEUE_PAUSES, cursor, limit=_PAGE):
            for change in page:
                found.pop(change.name, None)
                if change.definition is not None:
                    found[change.name] = change.definition
            cursor = page[-1].cursor
        return found


def announce_pauses(broker: Broker, *, app: str, paused: dict[str, QueuePause] | None) -> None:
    """Announce paused queues to workers and schedulers, if the broker has announcements.

    Args:
        app: the app whose job store has the pauses.
        paused: all of them; None: readers find them in the state.
    """
    if isinstance(broker, Broadcasting):
        command = Command(id=secrets.token_hex(8), name=QUEUES, app=app, paused=paused)
        broker.announce(command_topic(QUEUES), encode_command(command))
