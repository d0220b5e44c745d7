"""`taskmq top`."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.operators.workers import describe, describe_in_full
from taskmq.cli.output import printable, when, write_json, write_line, write_plain
from taskmq.cli.server_link import over_http
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption
from taskmq.model.units import parse_duration
from taskmq.operations.activity import Activity, TaskActivity
from taskmq.operations.queues import list_queues

if TYPE_CHECKING:
    from rich.console import RenderableType

    from taskmq.api.workers import WorkerView
    from taskmq.app import TaskMQ
    from taskmq.events.stream import EventStream

__all__ = ["ANSWER", "Sample", "draw", "show_activity", "task_row", "watch", "worker_row"]

ANSWER: Final = 0.3
"""Seconds that workers have to answer at each look."""
_QUEUES: Final = ("queue", "ready", "change", "unsettled", "delayed", "consumers")
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
    """What is shown at one moment.

    Attributes:
        broker: its address, without a password.
        at: when, in UTC.
        delayed: jobs and retries that wait for their time; None where the broker does not tell.
        missed: events that came too fast to be counted.
    """

    broker: str
    at: str
    delayed: int | None
    missed: int
    queues: Sequence[Mapping[str, Any]]
    tasks: Sequence[Mapping[str, Any]]
    workers: Sequence[Mapping[str, Any]]


@over_http("activity:show_activity")
def show_activity(
    *,
    every: str = "2s",
    count: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None,
) -> None:
    """Show what goes on: queues, what tasks did in the last minute, and workers. Ctrl-C ends it.

    Workers publish events of their jobs only while a reader listens. On a terminal one screen is drawn again and
    again; `-o jsonl` prints a line for each look.

    Parameters
    ----------
    every
        The time between two looks, from 0.2s.
    count
        How many looks, and then end; default: until Ctrl-C, with `-o json` one.
    queues
        Queues, separated by commas; default: those of the app (--app).
    """
    names = [name.strip() for name in queues.split(",")] if queues else []
    watch(every, count, lambda pause, looks, show: run_with_app(lambda app: _watch(app, names, pause, looks, show)))


def watch(every: str, count: int | None, run: Callable[[float, int | None, Callable[[Sample], None]], None]) -> None:
    """Show each look that `run` takes; it gets the seconds between them, how many they are, and what shows one.

    Raises:
        InvalidOption: the time between them cannot be.
    """
    pause = parse_duration(every, what="--every").total_seconds()
    if pause < 0.2:
        raise InvalidOption(f"--every {every}: at least 0.2s")
    if count is None and current_globals().output == "json":
        count = 1
    is_screen = current_globals().output == "table" and sys.stdout.isatty()
    if not is_screen:
        run(pause, count, _print)
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=count is None) as live:
        run(pause, count, lambda each: live.update(draw(each), refresh=True))


def task_row(each: TaskActivity) -> Mapping[str, Any]:
    """What one task did, as a row."""
    facts: dict[str, Any] = msgspec.to_builtins(each)
    facts["per_second"] = round(each.per_second, 1)
    if current_globals().output != "table":
        return facts
    for name in ("mean_wait", "mean_run", "longest_run"):
        facts[name] = _seconds_text(facts[name])
    return facts


def worker_row(worker: "WorkerView") -> Mapping[str, Any]:
    """A worker, as a row."""
    return describe(worker) if current_globals().output == "table" else describe_in_full(worker)


async def _watch(
    app: "TaskMQ", names: Sequence[str], pause: float, count: int | None, show: Callable[[Sample], None]
) -> None:
    from taskmq.app_api.workers import worker_view

    activity = Activity(now=time.monotonic())
    before: dict[str, int] = {}
    looks = 0
    async with app.events() as events:
        while count is None or looks < count:
            await _listen(events, activity, pause)
            found = await list_queues(app, names, within=ANSWER)
            now = time.monotonic()
            rows = [
                {
                    "queue": each.queue,
                    "ready": each.ready,
                    "change": round((each.ready - before.get(each.queue, each.ready)) / pause, 1),
                    "unsettled": each.unsettled,
                    "delayed": each.delayed,
                    "consumers": each.consumers,
                }
                for each in found.queues
            ]
            before = {each.queue: each.ready for each in found.queues}
            show(
                Sample(
                    broker=app.sessions.current().broker.address,
                    at=when(SystemClock().now_ms()),
                    delayed=found.delayed,
                    missed=events.missed + events.dropped,
                    queues=rows,
                    tasks=[task_row(each) for each in activity.tasks(now=now)],
                    workers=[worker_row(worker_view(each)) for each in activity.workers(now=now)],
                )
            )
            looks += 1


async def _listen(events: "EventStream", activity: Activity, seconds: float) -> None:
    """Count what comes within this time."""
    try:
        async with asyncio.timeout(seconds):
            async for event in events:
                activity.note(event, now=time.monotonic())
    except TimeoutError:
        return


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
    """One screen of it."""
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
