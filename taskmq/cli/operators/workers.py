"""`taskmq workers`."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from taskmq.cli.output import note
from taskmq.cli.server_link import ask, show_rows, text_of_instant
from taskmq.model.units import duration_text, parse_duration

if TYPE_CHECKING:
    from taskmq.api.workers import WorkerView

_COLUMNS = (
    "name",
    "host",
    "pid",
    "version",
    "app_version",
    "queues",
    "state",
    "running",
    "slots",
    "backlog",
    "memory",
    "cpu",
    "loop_lag",
    "uptime",
)
_MEGABYTE = 2**20


def workers(*, within: Annotated[str, Parameter(help="How long to wait for answers.")] = "1s") -> None:
    """List the running workers at the broker of the app (--app) or of --url.

    A worker does not answer if a task blocks its event loop, or with --no-control.

    Args:
        within: How long to wait for answers.
    """
    answers = ask(lambda api: api.workers.list(within=seconds_of(within)))
    if not answers:
        note(f"no worker answered within {within}")
    show_rows(_COLUMNS, answers, describe)


def seconds_of(text: str, *, what: str = "within") -> float:
    return parse_duration(text, what=what).total_seconds()


def describe(worker: "WorkerView") -> Mapping[str, Any]:
    """Return a worker as a row, abridged for people; see `describe_in_full`."""
    facts = describe_in_full(worker)
    return {
        **facts,
        "queues": ",".join(worker.queues),
        "paused": ",".join(worker.paused),
        "in_hand": ", ".join(f"{count} of {queue}" for queue, count in worker.in_hand.items()),
        "started": text_of_instant(worker.started),
        "jobs": [{**job, "seconds": f"{job['seconds']:.1f}"} for job in facts["jobs"]],
        "memory": f"{worker.memory / _MEGABYTE:.0f} MB",
        "cpu": f"{100 * worker.cpu:.0f} %",
        "loop_lag": f"{1000 * worker.loop_lag:.0f} ms",
        "clock_offset": None if worker.clock_offset is None else f"{1000 * worker.clock_offset:.0f} ms",
        "uptime": duration_text(facts["uptime"]),
    }


def describe_in_full(worker: "WorkerView") -> Mapping[str, Any]:
    """Return a worker as in the API, with its `uptime` in seconds."""
    uptime = 0.0
    if worker.started is not None:
        uptime = max(_now_ms() / 1000 - datetime.fromisoformat(worker.started).timestamp(), 0.0)
    return {**msgspec.to_builtins(worker), "uptime": round(uptime, 1)}


def _now_ms() -> int:
    from taskmq.contracts.system_clock import SystemClock

    return SystemClock().now_ms()
