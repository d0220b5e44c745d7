"""Paused queues of the worker, and their enforcement.

The state is authoritative. The worker reads it when it starts, so that a pause survives every restart, and again
every `_LOOK` seconds. A command over the broker only makes it read immediately, so a lost command does no harm. If
the state cannot be reached, the last known pauses hold; a worker that starts then consumes all its queues.
"""

import logging
from collections.abc import Sequence
from typing import Final

from taskmq.client.queues import QueuePause, paused_queues
from taskmq.contracts.broker import Consumer
from taskmq.contracts.stores import ScheduleStore
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq.model.topology import WorkQueue
from taskmq.worker.intake.slots import Slots
from taskmq.worker.services.state_copy import StateCopy

__all__ = ["QueuePauses"]

_log = logging.getLogger("taskmq.worker")

_LOOK: Final = 10.0


class QueuePauses(StateCopy):
    """Pauses and resumes the queues of one worker: a `Service` once it is attached.

    Args:
        queues: the queues that the worker consumes.
    """

    def __init__(self, store: ScheduleStore, queues: Sequence[WorkQueue]) -> None:
        super().__init__(
            every=_LOOK, trouble="the state does not say which queues are paused, what was known last holds"
        )
        self._store = store
        self._queues = queues
        self._known: dict[str, QueuePause] = {}
        self._in_force: set[str] = set()
        self._consumer: Consumer | None = None
        self._slots: Slots | None = None

    @property
    def names(self) -> list[str]:
        """Public names of the worker's paused queues."""
        return [queue.name for queue in self._queues if queue.name in self._known]

    def is_paused(self, queue: WorkQueue) -> bool:
        """Return whether the queue is paused, as far as is known here."""
        return queue.name in self._known

    def attach(self, consumer: Consumer, slots: Slots) -> None:
        """Set what to pause and resume; the consumer started with the queues paused that are known so far."""
        self._consumer, self._slots = consumer, slots
        self._in_force = set(self.names)
        for queue in self._queues:
            if queue.name in self._in_force:
                self._tell_paused(queue)

    async def _read(self) -> None:
        self._known = await paused_queues(self._store)

    async def _act(self) -> None:
        for queue in self._queues:
            is_wanted = self.is_paused(queue)
            if is_wanted == (queue.name in self._in_force) or self._is_stopping:
                continue
            try:
                await (self._pause(queue) if is_wanted else self._resume(queue))
            except (BrokerUnavailable, QueueMissing) as error:
                # Retried at the next check.
                _log.warning("queue %r is not resumed yet: %s", queue.name, error)

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
        _log.warning("queue %r is resumed", queue.name)

    def _tell_paused(self, queue: WorkQueue) -> None:
        note = self._known[queue.name].note
        _log.warning("queue %r is paused%s: nothing of it is started", queue.name, f" ({note})" if note else "")
