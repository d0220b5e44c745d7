"""Subscriptions of a worker to its queues."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Broker, Consumer, Delivery, Subscription
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq.model.topology import WorkQueue
from taskmq.worker.long_runs.guard import LongRunGuard
from taskmq.worker.prefetch import prefetch_of
from taskmq.worker.services.cancellations import Cancellations
from taskmq.worker.services.queue_pauses import QueuePauses
from taskmq.worker.setup import longest_run, with_former_lanes

_log = logging.getLogger("taskmq.worker")

_PAUSE: Final = 1.0


async def find_lanes(broker: Broker, queues: list[WorkQueue]) -> list[WorkQueue]:
    """Return the queues with the lanes that they had earlier; waits for the broker."""
    while True:
        try:
            return await with_former_lanes(broker, queues)
        except BrokerUnavailable as error:
            await _pause(error)


async def subscribe(
    app: TaskMQ,
    queues: Sequence[WorkQueue],
    deliver: Callable[[Delivery], None],
    *,
    prefetch: int,
    long_runs: LongRunGuard | None,
    cancellations: Cancellations | None,
    pauses: QueuePauses | None,
) -> Consumer:
    """Declare and consume the queues; waits for the broker and for missing queues."""
    session = app.sessions.current()
    while True:
        try:
            await session.declare(queues)
            if cancellations is not None:
                await cancellations.load()
            if pauses is not None:
                await pauses.load()
            subscriptions = [
                Subscription(
                    name,
                    prefetch_of(queue, name, prefetch),
                    longest=longest_run(app, queue),
                    is_punctual=long_runs is not None and long_runs.is_over(name),
                    is_paused=pauses is not None and pauses.is_paused(queue),
                )
                for queue in queues
                for name in queue.physical
            ]
            return await session.broker.consume(subscriptions, deliver)
        except (BrokerUnavailable, QueueMissing) as error:
            await _pause(error)


async def _pause(error: Exception) -> None:
    _log.warning("not consuming yet: %s", error)
    await asyncio.sleep(_PAUSE)
