"""Pauses of queues that job stores keep, as schedulers announce them: workers have no connection to a store."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from taskmq.contracts.broker_abilities import Broadcasting, Listening
from taskmq.errors import MalformedMessage
from taskmq.model.commands import PAUSES_ASKED, QUEUES, QueuePause, command_topic, decode_command

_log = logging.getLogger("taskmq.worker")

_PATIENCE: Final = 2.0


class AnnouncedPauses:
    """Pauses by the last announcement of each app.

    Args:
        has_store: whether the worker's app has a job store. Only then does the first read wait for an announcement,
            because without a scheduler no answer comes.

    Attributes:
        on_change: called when an announcement differs from the one before.
    """

    def __init__(self, broker: Broadcasting, *, has_store: bool) -> None:
        self.on_change: Callable[[], None] = _ignore
        self._broker = broker
        self._has_store = has_store
        self._apps: dict[str, dict[str, QueuePause]] = {}
        self._has_heard = asyncio.Event()
        self._listening: Listening | None = None

    async def queue_pauses(self) -> dict[str, QueuePause]:
        """Return the pauses of all apps by queue. The first call asks schedulers, and waits up to two seconds.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: this user may not read announcements.
        """
        if self._listening is None:
            self._listening = await self._broker.listen([command_topic(QUEUES)], self._receive)
            if self._has_store:
                self._broker.announce(PAUSES_ASKED, b"")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._has_heard.wait(), _PATIENCE)
        return {queue: pause for paused in self._apps.values() for queue, pause in paused.items()}

    async def aclose(self) -> None:
        """Stop listening to announcements."""
        if self._listening is not None:
            await self._listening.stop()

    def _receive(self, topic: str, body: bytes) -> None:
        try:
            command = decode_command(body)
        except MalformedMessage as error:
            _log.warning("%s: %s", topic, error)
            return
        if command.paused is None:
            return
        self._has_heard.set()
        if self._apps.get(command.app, {}) != command.paused:
            self._apps[command.app] = command.paused
            self.on_change()


def _ignore() -> None:
    """Do nothing: the pauses have not been read yet."""
