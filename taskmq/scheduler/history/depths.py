"""Sampling of the depths of queues, once a minute."""

import logging

from taskmq.app import TaskMQ
from taskmq.contracts.history import DepthStore, QueueDepth
from taskmq.errors import TaskMQError
from taskmq.model.history.rollups import minute_of
from taskmq.operations.queues import measure_demands

_log = logging.getLogger("taskmq.scheduler")


class DepthSampler:
    """Records the jobs of each queue of the app: in the store, at the broker, with workers.

    A minute that could not be sampled is a gap. The scheduler that counts runs calls it, so one scheduler samples.
    """

    def __init__(self, app: TaskMQ, depths: DepthStore) -> None:
        self._app = app
        self._depths = depths
        self._sampled = 0

    async def sample(self) -> None:
        """Record the depths of the present minute, unless this was done."""
        names = [queue.name for queue in self._app.tasks.queues]
        at = minute_of(self._app.sessions.clock.now_ms())
        if not names or at == self._sampled:
            return
        try:
            found = await measure_demands(self._app, names)
            await self._depths.add(
                [
                    QueueDepth(queue=name, at=at, stored=one.stored or 0, ready=one.ready, in_hand=one.in_hand)
                    for name, one in found.items()
                ]
            )
        except TaskMQError as error:
            _log.warning("depths of queues not sampled, will retry: %s", error)
            return
        self._sampled = at
