"""One replica."""

import asyncio
import heapq
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from taskmq.app import ScheduleEntry, TaskMQ
from taskmq.context import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.errors import SendError, StateUnavailable, UnsupportedFeature
from taskmq.schedule import Trigger
from taskmq.stores import OccurrenceStore

__all__ = ["Beat", "most_recent", "occurrence_job_id"]

T = TypeVar("T")

_log = logging.getLogger("taskmq.beat")

_LEASE: Final = 10.0
_LEASE_MS: Final = 10_000
_TTL: Final = 3600.0
_RETRY_PAUSE_MS: Final = 500
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
        self._clock = app.clock
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
        now = self._clock.now_ms()
        due = [(entry.trigger.next_after(now), name) for name, entry in self._app.schedules.items()]
        heapq.heapify(due)
        try:
            while not self._is_stopping.is_set():
                await self._sleep_until(due[0][0] if due else None)
                now = self._clock.now_ms()
                while due and due[0][0] <= now and not self._is_stopping.is_set():
                    first, name = due[0]
                    entry = self._app.schedules[name]
                    instant = most_recent(entry.trigger, first, now)
                    if instant != first:
                        _log.warning("schedule %s: what was due from %d to %d is skipped", name, first, instant - 1)
                    following = entry.trigger.next_after(instant)
                    heapq.heapreplace(due, (following, name))
                    # Remembered for longer than anybody can be late with it.
                    self._start(entry, instant, ttl=_TTL + (following - instant) / 1000)
        finally:
            self._is_stopping.set()
            await self._finish()
            await self._app.aclose()

    def _start(self, entry: ScheduleEntry, instant: int, *, ttl: float) -> None:
        task = asyncio.create_task(self._emit(entry, instant, ttl=ttl), name=f"schedule {entry.name}")
        self._emitting.add(task)
        task.add_done_callback(self._emitted)

    def _emitted(self, task: "asyncio.Task[None]") -> None:
        self._emitting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: an occurrence is not sent", task.get_name(), exc_info=error)

    async def _finish(self) -> None:
        if self._emitting:
            _, late = await asyncio.wait(self._emitting, timeout=_LEASE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _emit(self, entry: ScheduleEntry, instant: int, *, ttl: float) -> None:
        occurrence = _occurrence(self._app, entry.name, instant)
        call = entry.task.options(
            job_id=occurrence_job_id(self._app, entry.name, instant),
            meta={SCHEDULE_NAME: entry.name, SCHEDULED_FOR: str(instant)},
        )

        async def claim() -> bool:
            return await self._occurrences.claim(occurrence, owner=self._owner, lease=_LEASE, ttl=ttl)

        stage = "not claimed, so it may be missed"
        try:
            if not await self._insist(claim):
                await self._sleep_until(self._clock.now_ms() + _LEASE_MS)
                if self._is_stopping.is_set() or not await self._insist(claim):
                    return
            stage = "not sent"
            await self._insist(call.asend)
            stage = "sent, but not marked as sent: another beat may send it again"
            await self._insist(lambda: self._occurrences.complete(occurrence, ttl=ttl))
        except (SendError, StateUnavailable) as error:
            _log.error("schedule %s: the occurrence of %d is %s: %s", entry.name, instant, stage, error)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call` returns, tried again while a lease is held; afterwards another replica may take over."""
        deadline = self._clock.now_ms() + _LEASE_MS
        while True:
            try:
                return await call()
            except (SendError, StateUnavailable) as error:
                if self._clock.now_ms() + _RETRY_PAUSE_MS >= deadline or self._is_stopping.is_set():
                    raise
                _log.warning("trying again: %s", error)
                await self._sleep_until(self._clock.now_ms() + _RETRY_PAUSE_MS)

    async def _sleep_until(self, instant: int | None) -> None:
        """Return at `instant`, or when stopped."""
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._is_stopping.wait())]
        if instant is not None:
            waiting.append(asyncio.ensure_future(self._clock.sleep_until(instant)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


def most_recent(trigger: Trigger, instant: int, now: int) -> int:
    """The last nominal instant up to `now`; `instant` is one of them."""
    # A step back that doubles, because a trigger knows the way forward only.
    back = 1
    while (found := trigger.next_after(max(now - back, instant - 1))) > now:
        back *= 2
    while (later := trigger.next_after(found)) <= now:
        found = later
    return found
