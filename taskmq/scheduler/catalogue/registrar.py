"""Registration of tasks in the store, so that jobs can be submitted, checked and shown without the tasks' code.

    this scheduler's app  ->  origin "app"     at the start, and every ten minutes
    workers, by broadcast ->  origin "broker"  if valid; an unchanged one at most every five minutes

Anyone with write access to the broker can report tasks. Reports are therefore validated (`flaw_of`) and bounded, and
count only if no scheduler's app has a task of that name (`in_force`).
"""

import asyncio
import logging
from collections import deque
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import TaskStore
from taskmq.durable.service import pause, unless_set
from taskmq.errors import MalformedMessage, StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.jobs.call_schemas import flaw_of
from taskmq.model.jobs.registrations import TaskRegistration, ToldTasks, decode_told, encode_registration
from taskmq.tasks.registration import registrations_of

_log = logging.getLogger("taskmq.scheduler")

_AGAIN: Final = 600.0
_KNOWN_SECONDS: Final = 300.0
_MOST_WAITING: Final = 1_000
_MOST_FORMS: Final = 10_000
_LONGEST_NAME: Final = 255
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class TaskRegistrar:
    """A service that keeps the store's list of tasks up to date.

    Args:
        me: name of this scheduler.
    """

    def __init__(self, app: TaskMQ, tasks: TaskStore, *, me: str) -> None:
        self._app = app
        self._tasks = tasks
        self._me = me
        self._waiting: deque[ToldTasks] = deque(maxlen=_MOST_WAITING)
        self._written: dict[bytes, float] = {}
        self._complaints: set[str] = set()
        self._arrived = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE)

    def receive(self, body: bytes) -> None:
        """Queue a worker's report. Invalid reports are logged, not raised."""
        try:
            told = decode_told(body)
        except MalformedMessage as error:
            _log.debug("ignoring a malformed report of tasks: %s", error)
            return
        if told.app == self._app.name:
            self._waiting.append(told)
            self._arrived.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Register tasks until `stop`. Waits while the store is unavailable."""
        loop = asyncio.get_running_loop()
        again = loop.time()
        while not self._is_stopping.is_set():
            self._arrived.clear()
            try:
                if loop.time() >= again:
                    await self._tasks.register(registrations_of(self._app.tasks), origin="app", worker=self._me)
                    again = loop.time() + _AGAIN
                while self._waiting:
                    await self._write(self._waiting[0])
                    self._waiting.popleft()
            except StoreUnavailable as error:
                if not self._backoff.failures:
                    _log.warning("store unavailable, will register tasks later: %s", error)
                await pause(self._is_stopping, self._backoff.next())
                continue
            self._backoff.reset()
            await unless_set(self._is_stopping, self._arrived.wait(), timeout=again - loop.time())

    async def _write(self, told: ToldTasks) -> None:
        now = asyncio.get_running_loop().time()
        fresh = {key: one for one in told.tasks if (key := encode_registration(one)) and self._is_news(key, one, now)}
        if fresh:
            await self._tasks.register(list(fresh.values()), origin="broker", worker=told.worker[:_LONGEST_NAME])
            self._written.update(dict.fromkeys(fresh, now))

    def _is_news(self, key: bytes, one: TaskRegistration, now: float) -> bool:
        """Whether to register the task: it is valid, and was not registered a moment ago."""
        if key in self._written:
            return now - self._written[key] >= _KNOWN_SECONDS
        flaw = "too many tasks are registered" if len(self._written) >= _MOST_FORMS else flaw_of(one)
        if flaw and len(self._complaints) < _MOST_WAITING and one.task not in self._complaints:
            self._complaints.add(one.task)
            _log.warning("task %.128r: refusing a worker's registration: %s", one.task, flaw)
        return not flaw
