"""The child's end of the status pipe."""

import asyncio
import contextlib
import os
from typing import Final

from taskmq.app import TaskMQ
from taskmq.errors import TaskMQError
from taskmq.model.telemetry.metrics import Count
from taskmq.worker.child_protocol import ChildReady, ChildReport, write_line
from taskmq.worker.host.process_facts import ProcessorUse
from taskmq.worker.worker import Worker

PERIOD: Final = 1.0
_DEPTHS_EVERY: Final = 5
_LAST_WORDS: Final = 1.0


class Reporter:
    """Reports the worker's status to the supervisor. Costs nothing per message.

    Args:
        app: the worker's.
        target: the name by which the app was requested.
        status: the pipe's descriptor, which this object owns from now on.
        looks: whether this child asks the broker for queue depths at every fifth report.
        period: seconds between reports.
    """

    def __init__(
        self, worker: Worker, app: TaskMQ, *, target: str, status: int, looks: bool, period: float = PERIOD
    ) -> None:
        self._worker = worker
        self._app = app
        self._target = target
        self._status = status
        self._looks = looks
        self._period = period
        self._told: dict[tuple[str, str], int] = {}
        self._depths: dict[str, int] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._cpu = ProcessorUse()

    async def run(self) -> None:
        """Report until cancelled, or until the reader is gone; the last report tells apart how it ended."""
        loop = asyncio.get_running_loop()
        pipe = _Pipe()
        transport, _ = await loop.connect_write_pipe(lambda: pipe, os.fdopen(self._status, "wb", buffering=0))
        # A non-empty buffer means that the supervisor is behind.
        transport.set_write_buffer_limits(0)
        ready = asyncio.create_task(self._worker.is_ready.wait())
        try:
            turn = 0
            while not pipe.is_closed.is_set():
                await asyncio.wait((ready,), timeout=self._period)
                if ready.done() and not turn:
                    transport.write(write_line(self._ready()))
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(pipe.is_clear.wait(), self._period)
                if pipe.is_clear.is_set():
                    transport.write(write_line(self._report()))
                if ready.done():
                    self._look(turn)
                    turn += 1
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(pipe.is_closed.wait(), self._period)
        finally:
            ready.cancel()
            if self._looking is not None:
                self._looking.cancel()
            if not pipe.is_closed.is_set():
                transport.write(write_line(self._report()))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(pipe.is_clear.wait(), _LAST_WORDS)
            transport.close()

    def _ready(self) -> ChildReady:
        return ChildReady(
            app=self._target,
            broker=self._app.sessions.current().broker.address,
            queues=[queue.name for queue in self._worker.queues],
            tasks=sorted(self._app.tasks),
        )

    def _report(self) -> ChildReport:
        return ChildReport(
            status=self._worker.status(), counts=self._news(), cpu=self._cpu.cores(), depths=self._depths
        )

    def _news(self) -> list[Count]:
        # There is one count for each physical queue; people know the logical queue.
        parts: dict[tuple[str, str], list[Count]] = {}
        for count in self._worker.stats.counts.values():
            parts.setdefault((count.task, count.queue), []).append(count)
        news: list[Count] = []
        for key, counts in parts.items():
            if (ended := sum(count.ended for count in counts)) != self._told.get(key, 0):
                self._told[key] = ended
                whole = Count(*key)
                for count in counts:
                    whole.merge(count)
                news.append(whole)
        return news

    def _look(self, turn: int) -> None:
        if self._looks and turn % _DEPTHS_EVERY == 0 and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_now())

    async def _look_now(self) -> None:
        queues = {name: queue.name for queue in self._worker.queues for name in queue.physical}
        depths: dict[str, int] = {}
        try:
            for entry in await self._app.sessions.current().broker.stats(queues):
                name = queues[entry.queue]
                depths[name] = depths.get(name, 0) + entry.ready
        except TaskMQError:
            self._depths = None
        else:
            self._depths = depths


class _Pipe(asyncio.BaseProtocol):
    """Records whether the reader has taken what was written."""

    def __init__(self) -> None:
        self.is_clear = asyncio.Event()
        self.is_clear.set()
        self.is_closed = asyncio.Event()

    def pause_writing(self) -> None:
        self.is_clear.clear()

    def resume_writing(self) -> None:
        self.is_clear.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self.is_closed.set()
        self.is_clear.set()
