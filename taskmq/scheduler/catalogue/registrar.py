"""Writes down which tasks there are, so that jobs can be submitted, checked and shown without the tasks' code.

    this scheduler's app  ->  origin "app"     at the beginning, and every ten minutes
    workers, by broadcast ->  origin "broker"  where nothing is wrong with it; the same again once in five minutes

Who may write to the broker can tell tasks, too. So what comes from there is judged first (`flaw_of`), is bounded, and
counts only where no scheduler's app has a task of that name (`in_force`).
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

__all__ = ["TaskRegistrar"]

_log = logging.getLogger("taskmq.scheduler")

_AGAIN: Final = 600.0
_KNOWN_SECONDS: Final = 300.0
_MOST_WAITING: Final = 1_000
_MOST_FORMS: Final = 10_000
_LONGEST_NAME: Final = 255
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class TaskRegistrar:
    """Keeps the store's list of tasks: a `Service`.

    Args:
        me: this scheduler.
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

    def hear(self, body: bytes) -> None:
        """Take a message of a worker; whatever it is, nothing is raised."""
        try:
            told = decode_told(body)
        except MalformedMessage as error:
            _log.debug("a message about tasks: %s", error)
            return
        if told.app == self._app.name:
            self._waiting.append(told)
            self._arrived.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Write what there is until `stop`. A store that is not there is waited for."""
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
                    _log.warning("what tasks there are is written down later: %s", error)
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
        """Whether it is to be written: it is in order, and was not written a moment ago."""
        if key in self._written:
            return now - self._written[key] >= _KNOWN_SECONDS
        flaw = "there are too many already" if len(self._written) >= _MOST_FORMS else flaw_of(one)
        if flaw and len(self._complaints) < _MOST_WAITING and one.task not in self._complaints:
            self._complaints.add(one.task)
            _log.warning("task %.128r: a worker's description of it is refused: %s", one.task, flaw)
        return not flaw
