"""`taskmq doctor`."""

import asyncio

from taskmq.cli.exits import FAILED, OK, UNREACHABLE
from taskmq.cli.globals import open_app
from taskmq.cli.output import print_rows
from taskmq.cli.server_link import over_http
from taskmq.model.units import parse_duration
from taskmq.operations.diagnosis.doctor import examine

__all__ = ["doctor"]


@over_http("activity:doctor")
def doctor(*, watch: str | None = None) -> int:
    """Check settings, broker, state and job store; each finding with its remedy. Exit code 1 when there is a problem.

    With --app the app's queues are looked at, too. Nothing is changed. Through a server it shows whether its store,
    broker, state, schedulers and workers work, since when, and what does not work without each.

    Parameters
    ----------
    watch
        Look a second time after that long, for example 30s: shows what is stuck on its way out of a queue.
    """
    app = open_app()
    seconds = 0.0 if watch is None else parse_duration(watch, what="watch").total_seconds()
    examination = asyncio.run(examine(app, watch=seconds))
    print_rows(
        ("level", "about", "finding", "remedy"),
        [finding._asdict() for finding in examination.findings],
        folded=("finding", "remedy"),
    )
    if not examination.is_complete:
        return UNREACHABLE
    return FAILED if examination.has_problem else OK
