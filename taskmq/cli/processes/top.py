"""`taskmq top`."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.globals import current_globals
from taskmq.cli.operators.queue import FLOW, flow_of, stored_of
from taskmq.cli.operators.workers import describe, describe_in_full
from taskmq.cli.output import printable, when, write_json, write_line, write_plain
from taskmq.cli.server_link import Api, ask
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.telemetry.events import JobEvent
from taskmq.model.units import parse_duration
from taskmq.operations.activity import Activity, TaskActivity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from taskmq.api.queues import QueueGroup, QueueLine
    from taskmq.api.workers import WorkerView
    from taskmq.cli.operator import OperatorApi
    from taskmq.http import AsyncClient

# Seconds that workers have to answer each refresh.
_ANSWER: Final = 0.3
_QUEUES: Final = ("queue", "stored", "ready", "change", "unsettled", "delayed", "consumers", *FLOW)
_TASKS: Final = (
    "task",
    "per_second",
    "succeeded",
    "failed",
    "retried",
    "cancelled",
    "mean_wait",
    "mean_run",
    "longest_run",
)
_LEFT: Final = ("queue", "task", "name", "host", "queues", "state")
_WORKERS: Final = ("name", "host", "queues", "state", "running", "slots", "backlog", "memory", "loop_lag", "uptime")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Data shown at one moment.

    Attributes:
        broker: address without a password; through a server, the server's.
        at: the time, in UTC.
        delayed: delayed jobs and retries; None if the broker does not count them.
        missed: events that arrived too fast to be counted.
    """

    broker: str
    at: str
    delayed: int | None
    missed: int
    queues: Sequence[Mapping[str, Any]]
    tasks: Sequence[Mapping[str, Any]]
    workers: Sequence[Mapping[str, Any]]


def show_activity(
    *,
    every: str = "2s",
    count: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None,
) -> None:
    """Show live activity: queues, tasks of the last minute, and workers. Press Ctrl-C to stop.

    Workers publish events only while someone listens. On a terminal the screen is refreshed; `-o jsonl` prints one
    line per refresh.

    Args:
        every: Time between refreshes, from 0.2s.
        count: Number of refreshes. Default: until Ctrl-C; one with `-o json`.
        queues: Queues, separated by commas. Default: those of the app (--app).
    """
    names = [name.strip() for name in queues.split(",")] if queues else []
    pause = parse_duration(every, what="--every").total_seconds()
    if pause < 0.2:
        raise InvalidOption(f"--every {every}: must be at least 0.2s")
    if count is None and current_globals().output == "json":
        count = 1
    is_screen = current_globals().output == "table" and sys.stdout.isatty()
    if not is_screen:
        ask(lambda api: _Watch(api, names, pause).run(count, _print))
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=count is None) as live:
        ask(lambda api: _Watch(api, names, pause).run(count, lambda each: live.update(draw(each), refresh=True)))


def _task_row(each: TaskActivity) -> Mapping[str, Any]:
    """Return the activity of a task as a row."""
    facts: dict[str, Any] = msgspec.to_builtins(each)
    facts["per_second"] = round(each.per_second, 1)
    if current_globals().output != "table":
        return facts
    for name in ("mean_wait", "mean_run", "longest_run"):
        facts[name] = _seconds_text(facts[name])
    return facts


def _worker_row(worker: "WorkerView") -> Mapping[str, Any]:
    """Return a worker as a row."""
    return describe(worker) if current_globals().output == "table" else describe_in_full(worker)


class _Watch:
    """Reads samples periodically, and counts events in between.

    Args:
        names: names of queues; empty: those of the app.
        pause: seconds between two samples.
    """

    def __init__(self, api: Api, names: Sequence[str], pause: float) -> None:
        self._api = api
        self._names = names
        self._pause = pause
        self._activity = Activity(now=time.monotonic())
        self._before: dict[str, int] = {}
        self._missed = 0

    async def run(self, count: int | None, show: Callable[[Sample], None]) -> None:
        """Show the given number of samples."""
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read())
                looks = 0
                while count is None or looks < count:
                    await asyncio.sleep(self._pause)
                    show(await self._sample())
                    looks += 1
                reader.cancel()
        except ExceptionGroup as failed:
            # The first to fail has stopped the other.
            raise next(error for error in failed.exceptions if isinstance(error, TaskMQError)) from failed

    async def _read(self) -> None:
        if current_globals().server is None:
            async with cast("OperatorApi", self._api).events() as events:
                async for event in events:
                    self._missed = events.missed + events.dropped
                    if isinstance(event, JobEvent):
                        self._activity.note(event, now=time.monotonic())
            return
        async for told in cast("AsyncClient", self._api).events():
            if told.kind == "missed":
                self._missed += told.data["count"]
            elif told.kind == "job":
                facts = {**told.data, "at": round(datetime.fromisoformat(told.data["at"]).timestamp() * 1000)}
                self._activity.note(msgspec.convert(facts, JobEvent), now=time.monotonic())

    async def _sample(self) -> Sample:
        found, workers = await asyncio.gather(
            self._api.queues.list(self._names, within=_ANSWER), self._api.workers.list(within=_ANSWER)
        )
        groups = {each.queue: each for each in found.queues}
        rows = [self._row(each, groups.get(each.queue)) for each in found.items]
        self._before = {each.queue: each.ready for each in found.items}
        return Sample(
            broker=current_globals().server or cast("OperatorApi", self._api).address,
            at=when(SystemClock().now_ms()),
            delayed=found.delayed,
            missed=self._missed,
            queues=rows,
            tasks=[_task_row(each) for each in self._activity.tasks(now=time.monotonic())],
            workers=[_worker_row(each) for each in sorted(workers, key=lambda each: each.name)],
        )

    def _row(self, each: "QueueLine", group: "QueueGroup | None") -> Mapping[str, Any]:
        return {
            "queue": each.queue,
            "stored": stored_of(group),
            "is_exact": group is None or group.is_exact,
            "ready": each.ready,
            "change": round((each.ready - self._before.get(each.queue, each.ready)) / self._pause, 1),
            "unsettled": each.in_hand,
            "delayed": each.delayed,
            "consumers": each.consumers,
            **flow_of(group),
        }


def _seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _print(sample: Sample) -> None:
    match current_globals().output:
        case "json":
            write_json(sample, is_pretty=True)
        case "jsonl":
            write_json(sample)
        case "table":
            write_line(printable(_title(sample)))
            for columns, rows in _parts(sample):
                write_plain(columns, rows)


def _title(sample: Sample) -> str:
    missed = f", {sample.missed} events missed" if sample.missed else ""
    delayed = "" if sample.delayed is None else f"{sample.delayed} delayed, "
    return f"{sample.at}  {sample.broker}  {delayed}{len(sample.workers)} workers{missed}"


def _parts(sample: Sample) -> Sequence[tuple[Sequence[str], Sequence[Mapping[str, Any]]]]:
    return ((_QUEUES, sample.queues), (_TASKS, sample.tasks), (_WORKERS, sample.workers))


def draw(sample: Sample) -> "RenderableType":
    """Render a sample as a screen."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn: list[RenderableType] = [Text(printable(_title(sample)), style="bold")]
    for columns, rows in _parts(sample):
        table = Table(box=None, header_style="bold cyan", pad_edge=False, expand=True)
        for column in columns:
            table.add_column(
                column.replace("_", " "),
                overflow="ellipsis",
                no_wrap=True,
                justify="left" if column in _LEFT else "right",
            )
        for row in rows:
            table.add_row(*(Text(printable(row.get(column))) for column in columns))
        drawn.extend((Text(), table))
    return Group(*drawn)
