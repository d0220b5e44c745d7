"""The lanes of an app's queues: jobs are placed from any thread, and depths are looked up beside the sends.

Threads share the counts without a lock, which a send from a finalizer or a signal handler could wait for in vain. A
count that two of them change at the same time may be off by one; lanes are chosen by estimates.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from taskmq.client.lanes.choice import LaneChoice
from taskmq.client.session import Session
from taskmq.errors import TaskMQError
from taskmq.model.topology import WorkQueue

__all__ = ["Lanes"]

_PATIENCE: Final = 5.0


class Lanes:
    """What one process knows of the lanes of the queues that have some.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._choices: dict[str, LaneChoice] = {}

    def place(self, queue: WorkQueue, tenant: str | None, *, is_delayed: bool = False) -> str:
        """Return the physical queue for a job of this tenant."""
        return self._choice(queue).place(tenant, now=self._monotonic(), is_delayed=is_delayed)

    def look(self, queue: WorkQueue, session: Session) -> None:
        """Find out how much waits in each lane, unless that is known well enough; no sender waits for it.

        A queue that the session has not declared is not looked at: it may not be there yet.
        """
        choice = self._choice(queue)
        now = self._monotonic()
        if session.is_declared(queue) and choice.wants_look(now=now):
            session.start(self._learn(choice, session, now))

    async def _learn(self, choice: LaneChoice, session: Session, asked: float) -> None:
        # A broker that does not tell leaves the choice with what was sent from here.
        with contextlib.suppress(TaskMQError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                found = await session.broker.stats(choice.watched)
            choice.learn({each.queue: each.ready for each in found}, asked=asked, now=self._monotonic())

    def _choice(self, queue: WorkQueue) -> LaneChoice:
        choice = self._choices.get(queue.name)
        return choice if choice is not None else self._choices.setdefault(queue.name, LaneChoice(queue))
