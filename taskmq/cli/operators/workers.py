"""`taskmq workers`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import note, print_rows
from taskmq.events.control import command_workers
from taskmq.model.commands import Command, CommandAnswer
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import parse_duration

__all__ = ["ask_workers", "describe", "workers"]

_COLUMNS = (
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


def workers(*, within: Annotated[str, Parameter(help="How long to wait for answers.")] = "1s") -> None:
    """List the workers that answer, at the broker of the app (--app) or of --url.

    A worker whose event loop is held up by a task, or that runs with --no-control, does not answer.

    Parameters
    ----------
    within
        How long to wait for answers.
    """
    answers = ask_workers(Command(id="", name="ping"), within=within)
    if not answers:
        note(f"no worker answers within {within}")
    print_rows(_COLUMNS, [describe(answer.status) for answer in answers])


def ask_workers(command: Command, *, within: str) -> Sequence[CommandAnswer]:
    """What workers answer to a command."""
    target = open_app()
    seconds = parse_duration(within, what="within").total_seconds()

    async def run() -> Sequence[CommandAnswer]:
        async with target:
            return await command_workers(target.sessions.current().broker, command, within=seconds)

    return asyncio.run(run())


def describe(status: WorkerStatus) -> Mapping[str, Any]:
    """A worker as a row: in full for programs, in few words for people."""
    uptime = max(_now_ms() - status.started, 0) / 1000
    facts = {**msgspec.to_builtins(status), "uptime": round(uptime, 1)}
    if current_globals().output != "table":
        return facts
    return {
        **facts,
        "queues": ",".join(status.queues),
        "memory": f"{status.memory / _MEGABYTE:.0f} MB",
        "loop_lag": f"{1000 * status.loop_lag:.0f} ms",
        "uptime": f"{uptime:.0f} s",
    }


def _now_ms() -> int:
    from taskmq.contracts.system_clock import SystemClock

    return SystemClock().now_ms()
