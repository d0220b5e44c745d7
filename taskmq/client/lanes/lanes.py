"""The lanes of an app's queues, chosen from any thread; lengths are polled in the background.

Threads share the counts without a lock, because a send from a finalizer or signal handler could deadlock on it.
Concurrent changes may make a count off by one, which does not matter for estimates.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from taskmq.client.lanes.choice import LaneChoice
from taskmq.client.session import Session
from taskmq.errors import TaskMQError
from taskmq.model.topology import WorkQueue

_PATIENCE: Final = 5.0


class Lanes:
    """The lanes of all queues of an app, as one process knows them.

    Args:
        monotonic: a monotonic clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._choices: dict[str, LaneChoice] = {}

    def queue_for(self, queue: WorkQueue, tenant: str | None, *, is_delayed: bool = False) -> str:
        """Return the RabbitMQ queue for a job of this tenant."""
        return self._choice(queue).choose_lane(tenant, now=self._monotonic(), is_delayed=is_delayed)

    def poll(self, queue: WorkQueue, session: Session) -> None:
        """Poll the lengths of the lanes in the background, unless they are recent enough.

        Queues that the session has not declared are not polled, because they may not exist.
        """
        choice = self._choice(queue)
        now = self._monotonic()
        if session.is_declared(queue) and choice.wants_poll(now=now):
            session.start(self._learn(choice, session, now))

    async def _learn(self, choice: LaneChoice, session: Session, asked: float) -> None:
        # Without an answer, the choice relies on what this process sent.
        with contextlib.suppress(TaskMQError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                found = await session.broker.stats(choice.watched)
            choice.learn({each.queue: each.ready for each in found}, asked=asked, now=self._monotonic())

    def _choice(self, queue: WorkQueue) -> LaneChoice:
        choice = self._choices.get(queue.name)
        return choice if choice is not None else self._choices.setdefault(queue.name, LaneChoice(queue))
