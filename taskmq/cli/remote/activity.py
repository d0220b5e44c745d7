"""`taskmq top` and `taskmq doctor` through a server."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from taskmq.api.queues import QueueLine
from taskmq.api.workers import PartView
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals, only_here
from taskmq.cli.output import when
from taskmq.cli.processes.top import ANSWER, Sample, task_row, watch, worker_row
from taskmq.cli.remote.queues import lines_of
from taskmq.cli.server_link import show_rows, text_of_instant
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import TaskMQError
from taskmq.http import AsyncClient, Client, LiveEvent
from taskmq.model.telemetry.events import JobEvent
from taskmq.operations.activity import Activity

__all__ = ["doctor", "show_activity"]

_PART_COLUMNS: Final = ("part", "status", "since", "finding", "without")


def show_activity(client: Client, *, every: str, count: int | None, queues: str | None) -> int:
    # Events and looks come at the same time, which takes coroutines.
    del client
    names = {name.strip() for name in queues.split(",")} if queues else None
    options = current_globals()

    def run(pause: float, looks: int | None, show: Callable[[Sample], None]) -> None:
        asyncio.run(_Watch(names, pause, looks, show).run(AsyncClient(options.server, insecure=options.is_insecure)))

    watch(every, count, run)
    return OK


def doctor(client: Client, *, watch: str | None) -> int:
    only_here(watch=watch)
    found = client.health()

    def row(one: PartView) -> dict[str, Any]:
        lost = "" if one.status in {"works", "absent"} else one.without
        return {**msgspec.structs.asdict(one), "since": text_of_instant(one.since), "without": lost}

    show_rows(_PART_COLUMNS, found.parts, row, folded=("finding", "without"))
    return OK if found.works else FAILED


class _Watch:
    """Looks at a server again and again, and counts its events meanwhile.

    Args:
        names: of queues; None: all.
    """

    def __init__(
        self, names: set[str] | None, pause: float, looks: int | None, show: Callable[[Sample], None]
    ) -> None:
        self._names = names
        self._pause = pause
        self._looks = looks
        self._show = show
        self._activity = Activity(now=time.monotonic())
        self._before: dict[str, int] = {}
        self._missed = 0

    async def run(self, client: AsyncClient) -> None:
        try:
            async with client, asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(client))
                looks = 0
                while self._looks is None or looks < self._looks:
                    await asyncio.sleep(self._pause)
                    self._show(await self._look(client))
                    looks += 1
                reader.cancel()
        except ExceptionGroup as failed:
            # Whichever failed first has stopped the other.
            raise next(error for error in failed.exceptions if isinstance(error, TaskMQError)) from failed

    async def _read(self, client: AsyncClient) -> None:
        async for event in client.events():
            self._note(event)

    def _note(self, event: LiveEvent) -> None:
        if event.kind == "missed":
            self._missed += event.data["count"]
        elif event.kind == "job":
            facts = {**event.data, "at": round(datetime.fromisoformat(event.data["at"]).timestamp() * 1000)}
            self._activity.note(msgspec.convert(facts, JobEvent), now=time.monotonic())

    async def _look(self, client: AsyncClient) -> Sample:
        found = await client.queues.list(within=ANSWER)
        workers = await client.workers.list(within=ANSWER)
        lines = lines_of(found, self._names)
        rows = [self._row(each) for each in lines]
        self._before = {each.queue: each.ready for each in lines}
        return Sample(
            broker=current_globals().server or "",
            at=when(SystemClock().now_ms()),
            delayed=found.delayed,
            missed=self._missed,
            queues=rows,
            tasks=[task_row(each) for each in self._activity.tasks(now=time.monotonic())],
            workers=[worker_row(each) for each in sorted(workers, key=lambda each: each.name)],
        )

    def _row(self, each: QueueLine) -> dict[str, Any]:
        before = self._before.get(each.queue, each.ready)
        return {
            "queue": each.queue,
            "ready": each.ready,
            "change": round((each.ready - before) / self._pause, 1),
            "unsettled": each.in_hand,
            "delayed": each.delayed,
            "consumers": each.consumers,
        }
