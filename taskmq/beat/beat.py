"""One replica."""

import asyncio
import heapq
import logging
import os
import socket
import uuid
from typing import Final

from taskmq.app import ScheduleEntry, TaskMQ
from taskmq.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.errors import SendError, StateUnavailable, UnsupportedFeature
from taskmq.stores import OccurrenceStore

__all__ = ["Beat", "occurrence_job_id"]

_log = logging.getLogger("taskmq.beat")

_LEASE: Final = 10.0
_TTL: Final = 3600.0
_RETRY_PAUSE: Final = 0.5
_NAMESPACE: Final = uuid.UUID("6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77")


def occurrence_job_id(app: TaskMQ, schedule: str, instant: int) -> str:
    """The id of the job that `schedule` emits for its nominal instant (ms): the same from every replica."""
    return str(uuid.uuid5(_NAMESPACE, _occurrence(app, schedule, instant)))


def _occurrence(app: TaskMQ, schedule: str, instant: int) -> str:
    return f"{app.name}/{schedule}@{instant}"


class Beat:
    """Emits an app's schedules until it is stopped.

    Raises:
        UnsupportedFeature: the app has no state to share claims in.
    """

    def __init__(self, app: TaskMQ) -> None:
        if app.state_url is None:
            raise UnsupportedFeature(
                "beat needs a state, so that replicas do not emit twice: TaskMQ(..., state='redis://...'), "
                "$TASKMQ_STATE, or local://PATH on one host"
            )
        self._app = app
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._is_stopping = asyncio.Event()
        self._emitting: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """`run` returns once what is being emitted is confirmed."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Emit until stopped."""
        session = self._app.session()
        assert session.state is not None
        self._occurrences: OccurrenceStore = session.state.occurrences
        now = self._app.clock.now_ms()
        due = [(entry.trigger.next_after(now), name) for name, entry in self._app.schedules.items()]
        heapq.heapify(due)
        stopped = asyncio.create_task(self._is_stopping.wait())
        try:
            while not stopped.done():
                await self._sleep_until(due[0][0] if due else None, stopped)
                now = self._app.clock.now_ms()
                while due and due[0][0] <= now and not stopped.done():
                    instant, name = due[0]
                    entry = self._app.schedules[name]
                    heapq.heapreplace(due, (entry.trigger.next_after(max(instant, now - 1)), name))
                    task = asyncio.create_task(self._emit(entry, instant))
                    self._emitting.add(task)
                    task.add_done_callback(self._emitting.discard)
        finally:
            stopped.cancel()
            if self._emitting:
                await asyncio.wait(self._emitting, timeout=_LEASE)
            await self._app.aclose()

    async def _sleep_until(self, instant: int | None, stopped: "asyncio.Task[bool]") -> None:
        if instant is None:
            await asyncio.wait((stopped,))
            return
        sleeping = asyncio.ensure_future(self._app.clock.sleep_until(instant))
        await asyncio.wait((sleeping, stopped), return_when=asyncio.FIRST_COMPLETED)
        sleeping.cancel()

    async def _emit(self, entry: ScheduleEntry, instant: int) -> None:
        occurrence = _occurrence(self._app, entry.name, instant)
        try:
            if not await self._claim(occurrence):
                await self._pause(_LEASE)
                if self._is_stopping.is_set() or not await self._claim(occurrence):
                    return
            if await self._publish(entry, instant):
                await self._occurrences.complete(occurrence, ttl=_TTL)
        except StateUnavailable as error:
            _log.error("schedule %s: the occurrence of %d is missed, no claim: %s", entry.name, instant, error)

    async def _claim(self, occurrence: str) -> bool:
        return await self._occurrences.claim(occurrence, owner=self._owner, lease=_LEASE, ttl=_TTL)

    async def _publish(self, entry: ScheduleEntry, instant: int) -> bool:
        call = entry.task.options(
            job_id=occurrence_job_id(self._app, entry.name, instant),
            meta={SCHEDULE_NAME: entry.name, SCHEDULED_FOR: str(instant)},
        )
        # The lease is held for as long as this tries; afterwards another replica may take over.
        deadline = asyncio.get_running_loop().time() + _LEASE
        while True:
            try:
                await call.asend()
            except SendError as error:
                if asyncio.get_running_loop().time() + _RETRY_PAUSE >= deadline or self._is_stopping.is_set():
                    _log.error("schedule %s: the occurrence of %d is not sent: %s", entry.name, instant, error)
                    return False
                await self._pause(_RETRY_PAUSE)
            else:
                return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_stopping.wait()
        except TimeoutError:
            return
