"""Announcement of the worker's tasks to schedulers, for callers that submit jobs without the tasks' code.

Announcing never waits, and a message may get lost: it is sent again every ten minutes, and when a scheduler asks.
"""

import asyncio
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.durable.service import pause, unless_set
from taskmq.model.jobs.registrations import TASKS_TOLD, encode_told
from taskmq.tasks.registration import registrations_of

_AGAIN: Final = 600.0
# Minimum seconds between announcements: many schedulers may start at a time.
_BETWEEN: Final = 1.0


class TaskAnnouncer:
    """Sends schedulers the tasks of a worker's app: a `Service`."""

    def __init__(self, broker: Broadcasting, app: TaskMQ, *, worker: str) -> None:
        self._broker = broker
        self._app = app
        self._worker = worker
        self._messages: list[bytes] | None = None
        self._is_asked = asyncio.Event()
        self._is_stopping = asyncio.Event()

    def wake(self) -> None:
        """Send the tasks soon, not only in ten minutes."""
        self._is_asked.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Send the tasks now, and repeatedly until `stop`."""
        while not self._is_stopping.is_set():
            self._is_asked.clear()
            self._tell()
            if await pause(self._is_stopping, _BETWEEN):
                return
            await unless_set(self._is_stopping, self._is_asked.wait(), timeout=_AGAIN)

    def _tell(self) -> None:
        if self._messages is None:
            # Built once: tasks do not change while a worker runs.
            self._messages = list(encode_told(self._app.name, self._worker, registrations_of(self._app.tasks)))
        for message in self._messages:
            self._broker.announce(TASKS_TOLD, message)
