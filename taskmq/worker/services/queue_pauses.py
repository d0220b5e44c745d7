"""Paused queues of the worker, and their enforcement.

The worker reads the pauses when it starts, so that a pause survives every restart, and again every `_LOOK` seconds. A
command over the broker only makes it read immediately, so a lost command does no harm. If the pauses cannot be read,
the last known ones apply; a worker that starts then consumes all its queues.
"""

import logging
from collections.abc import Sequence
from typing import Final

from taskmq.client.queues import StatePauses
from taskmq.contracts.broker import Consumer
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq.model.commands import QueuePause
from taskmq.model.topology import WorkQueue
from taskmq.worker.intake.slots import Slots
from taskmq.worker.services.announced_pauses import AnnouncedPauses
from taskmq.worker.services.state_copy import StateCopy

_log = logging.getLogger("taskmq.worker")

_LOOK: Final = 10.0


class QueuePauses(StateCopy):
    """Pauses and resumes the queues of one worker: a `Service` once it is attached.

    Args:
        source: where the pauses are read: in the state, or without one, from announcements of schedulers.
        queues: the queues that the worker consumes.

    Attributes:
        pauses_all: whether an operator paused the worker, so it consumes none of its queues.
    """

    def __init__(self, source: StatePauses | AnnouncedPauses, queues: Sequence[WorkQueue]) -> None:
        super().__init__(every=_LOOK, trouble="reading the paused queues failed, the last known pauses apply")
        self._source = source
        if isinstance(source, AnnouncedPauses):
            source.on_change = self.wake
        self._queues = queues
        self._known: dict[str, QueuePause] = {}
        self.pauses_all = False
        self._in_force: set[str] = set()
        self._consumer: Consumer | None = None
        self._slots: Slots | None = None

    @property
    def names(self) -> list[str]:
        """Public names of the worker's paused queues."""
        return [queue.name for queue in self._queues if queue.name in self._known]

    def is_paused(self, queue: WorkQueue) -> bool:
        """Return whether this worker must not consume the queue, as far as is known here."""
        return self.pauses_all or queue.name in self._known

    def attach(self, consumer: Consumer, slots: Slots) -> None:
        """Set what to pause and resume; the consumer started with the queues paused that are known so far."""
        self._consumer, self._slots = consumer, slots
        self._in_force = set(self.names)
        for queue in self._queues:
            if queue.name in self._in_force:
                self._tell_paused(queue)

    async def run(self) -> None:
        """Follow the pauses until `stop`."""
        try:
            await super().run()
        finally:
            if isinstance(self._source, AnnouncedPauses):
                await self._source.aclose()

    async def _read(self) -> None:
        self._known = await self._source.queue_pauses()

    async def _act(self) -> None:
        for queue in self._queues:
            is_wanted = self.is_paused(queue)
            if is_wanted == (queue.name in self._in_force) or self._is_stopping:
                continue
            try:
                await (self._pause(queue) if is_wanted else self._resume(queue))
            except (BrokerUnavailable, QueueMissing) as error:
                # Retried at the next check.
                _log.warning("resuming queue %r failed, will retry: %s", queue.name, error)

    async def _pause(self, queue: WorkQueue) -> None:
        assert self._consumer is not None
        assert self._slots is not None
        self._in_force.add(queue.name)
        for physical in queue.physical:
            await self._consumer.pause(physical)
        # No more deliveries arrive, so none is left behind.
        self._slots.pause(queue.physical)
        self._tell_paused(queue)

    async def _resume(self, queue: WorkQueue) -> None:
        assert self._consumer is not None
        assert self._slots is not None
        self._slots.resume(queue.physical)
        for physical in queue.physical:
            await self._consumer.resume(physical)
        self._in_force.discard(queue.name)
        _log.warning("queue %r resumed", queue.name)

    def _tell_paused(self, queue: WorkQueue) -> None:
        note = "" if (known := self._known.get(queue.name)) is None else known.note
        _log.warning("queue %r paused%s: its jobs are not started", queue.name, f" ({note})" if note else "")
