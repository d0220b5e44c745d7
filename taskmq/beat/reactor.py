"""Reactor: the part of a beat replica that watches for files and messages, and fires due reactions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from taskmq.app import TaskMQ
from taskmq.beat.folders import Folder
from taskmq.beat.topics import ForeignQueue, Topic, source_queue
from taskmq.contracts.stores import State
from taskmq.errors import StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.keys import reaction_record_key
from taskmq.reactions import (
    FileArrives,
    MessageComes,
    PendingCalls,
    QueueMessageComes,
    ReactionDelivery,
    read_pending,
)

_log = logging.getLogger("taskmq.beat")

_LOOK_MS: Final = 1_000


class Reactor:
    """Decides and publishes the reactions of an app, in one replica.

    Args:
        clock: the common time of all replicas.
        owner: identifies this replica.
    """

    def __init__(self, app: TaskMQ, state: State, *, clock: Clock, owner: str) -> None:
        self._app = app
        self._store = state.schedules
        self._clock = clock
        self._delivery = ReactionDelivery(app.name, app.producer)
        self._calls = PendingCalls(app.name, self._store, self._delivery, clock=clock, owner=owner, log=_log)
        self._remembering = [each for each in app.reactions.values() if not each.is_direct]
        self._folders: list[Folder] = []
        self._topics: list[Topic | ForeignQueue] = []
        broker = app.sessions.current().broker
        for reaction in app.reactions.values():
            for number, condition in enumerate(reaction.plan.conditions):
                if isinstance(condition, FileArrives):
                    self._folders.append(
                        Folder(
                            reaction,
                            number,
                            condition,
                            app=app.name,
                            delivery=self._delivery,
                            claims=state.claims,
                            owner=owner,
                        )
                    )
                elif isinstance(condition, MessageComes):
                    self._topics.append(
                        Topic(
                            reaction,
                            number,
                            condition,
                            app=app.name,
                            delivery=self._delivery,
                            broker=broker,
                            clock=app.sessions.clock,
                        )
                    )
                elif isinstance(condition, QueueMessageComes):
                    self._topics.append(
                        ForeignQueue(
                            reaction,
                            number,
                            source_queue(app.name, reaction, number, condition, url=app.sessions.url),
                            delivery=self._delivery,
                            broker=broker,
                            clock=app.sessions.clock,
                        )
                    )

    async def run(self) -> None:
        """Watch until cancelled; then messages in hand are returned.

        Raises:
            UnsupportedFeature: the broker has no topic exchanges, and a reaction waits for messages.
        """
        looks: list[Callable[[], Awaitable[int | None]]] = [partial(_look, each) for each in self._folders]
        looks += [partial(_look, each) for each in self._topics]
        if self._remembering:
            looks.append(self._tick)
        tasks = [asyncio.ensure_future(self._keep(look)) for look in looks]
        try:
            if tasks:
                # The first error of any ends all.
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.gather(*(topic.stop() for topic in self._topics))

    async def _keep(self, look: Callable[[], Awaitable[int | None]]) -> None:
        while True:
            wake = await look()
            later = self._clock.now_ms() + _LOOK_MS
            await self._clock.sleep_until(later if wake is None else min(wake, later))

    async def _tick(self) -> int | None:
        """Fire due reactions; return when to look again, if that is known."""
        names = [reaction_record_key(self._app.name, each.name) for each in self._remembering]
        try:
            pending_ones = await read_pending(self._store, names)
            wakes = [
                wake
                for reaction, pending in zip(self._remembering, pending_ones, strict=True)
                if (wake := await self._calls.fire(reaction, pending)) is not None
            ]
        except StateUnavailable as error:
            _log.warning("firing reactions failed, will retry: %s", error)
            return None
        return min(wakes, default=None)


async def _look(at: Folder | Topic | ForeignQueue) -> None:
    await at.look()
