"""`taskmq workers`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from cyclopts import Parameter

from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import duration_text, note, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import parse_duration
from taskmq.operations.workers import list_workers

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = ["WORKER_COLUMNS", "at_app", "describe", "seconds_of", "workers"]

T = TypeVar("T")

WORKER_COLUMNS = (
    "name",
    "host",
    "pid",
    "version",
    "queues",
    "state",
    "running",
    "slots",
    "backlog",
    "memory",
    "loop_lag",
    "uptime",
)
_MEGABYTE = 2**20


@over_http("workers:workers")
def workers(*, within: Annotated[str, Parameter(help="How long to wait for answers.")] = "1s") -> None:
    """List the workers that answer, at the broker of the app (--app) or of --url.

    A worker whose event loop is held up by a task, or that runs with --no-control, does not answer.

    Parameters
    ----------
    within
        How long to wait for answers.
    """
    answers = at_app(lambda target: list_workers(target, within=seconds_of(within)))
    if not answers:
        note(f"no worker answers within {within}")
    print_rows(WORKER_COLUMNS, [describe(answer.status) for answer in answers])


def at_app(ask: "Callable[[TaskMQ], Coroutine[Any, Any, T]]") -> T:
    """What the workers at the broker of the app, or of --url, answer."""
    target = open_app()

    async def run() -> T:
        async with target:
            return await ask(target)

    return asyncio.run(run())


def seconds_of(text: str, *, what: str = "within") -> float:
    return parse_duration(text, what=what).total_seconds()


def describe(status: WorkerStatus) -> Mapping[str, Any]:
    """A worker as a row: in full for programs, in few words for people."""
    uptime = max(_now_ms() - status.started, 0) / 1000
    facts = {**msgspec.to_builtins(status), "uptime": round(uptime, 1)}
    if current_globals().output != "table":
        return facts
    return {
        **facts,
        "queues": ",".join(status.queues),
        "paused": ",".join(status.paused),
        "node": None if status.node is None else status.node.name,
        "in_hand": ", ".join(f"{count} of {queue}" for queue, count in status.in_hand.items()),
        "started": when(status.started),
        "jobs": [{**msgspec.to_builtins(job), "seconds": f"{job.seconds:.1f}"} for job in status.jobs],
        "memory": f"{status.memory / _MEGABYTE:.0f} MB",
        "loop_lag": f"{1000 * status.loop_lag:.0f} ms",
        "uptime": duration_text(uptime),
    }


def _now_ms() -> int:
    from taskmq.contracts.system_clock import SystemClock

    return SystemClock().now_ms()
