"""Queues that operators have paused: the scheduler dispatches none of their jobs.

The state has the pauses, or if the app has none, the job store. Workers without a state cannot read the store, so the
scheduler announces the pauses of the store to them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from taskmq.client.queues import announce_pauses
from taskmq.contracts.broker import Broker
from taskmq.contracts.jobs import PauseStore
from taskmq.durable.service import pause
from taskmq.errors import MalformedMessage, StateUnavailable, StoreUnavailable
from taskmq.model.commands import QueuePause, decode_command

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 5.0


class PausedQueues:
    """A copy of the pauses, read every few seconds and on `wake`: a `Service`.

    If the pauses cannot be read, the last known ones apply.

    Args:
        store: where the pauses are.
        app: the app whose job store has the pauses, so that they are announced; None: the state has them.
        on_change: called when queues were paused or resumed.
    """

    def __init__(self, broker: Broker, store: PauseStore, *, app: str | None, on_change: Callable[[], None]) -> None:
        self._broker = broker
        self._store = store
        self._app = app
        self._on_change = on_change
        self._paused: dict[str, QueuePause] = {}
        self._has_trouble = False
        self._waking = asyncio.Event()
        self._is_stopping = False

    def is_paused(self, queue: str) -> bool:
        """Return whether the queue is paused, as far as this process knows."""
        return queue in self._paused

    def wake(self) -> None:
        """Read the pauses now, because a worker has asked for them."""
        self._waking.set()

    def hear(self, body: bytes) -> None:
        """Read the pauses now if an announcement says that they changed.

        Schedulers of the same app announce what they have read. Such an announcement changes nothing, so that they do
        not answer one another.
        """
        with contextlib.suppress(MalformedMessage):
            command = decode_command(body)
            if self._app is None:
                is_changed = command.paused is None
            else:
                is_changed = command.app == self._app and command.paused != self._paused
            if is_changed:
                self._waking.set()

    async def load(self) -> None:
        """Read the pauses once, and announce them if they are the store's; returns even if the read fails."""
        try:
            paused = await self._store.queue_pauses()
        except (StateUnavailable, StoreUnavailable) as error:
            if not self._has_trouble:
                _log.warning("reading the paused queues failed, the last known pauses apply: %s", error)
            self._has_trouble = True
            return
        self._has_trouble = False
        if self._app is not None:
            announce_pauses(self._broker, app=self._app, paused=paused)
        before, self._paused = self._paused, paused
        if paused.keys() != before.keys():
            self._on_change()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping = True
        self._waking.set()

    async def run(self) -> None:
        """Follow the pauses, which were loaded once, until `stop`."""
        while not self._is_stopping:
            await pause(self._waking, _PERIOD)
            self._waking.clear()
            await self.load()
