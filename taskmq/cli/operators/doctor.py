"""`taskmq doctor`."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from taskmq.cli.exits import FAILED, OK, UNREACHABLE
from taskmq.cli.globals import current_globals, only_here, open_app
from taskmq.cli.output import print_rows
from taskmq.cli.server_link import ask, show_rows, text_of_instant
from taskmq.model.units import parse_duration
from taskmq.operations.diagnosis.doctor import examine

if TYPE_CHECKING:
    from taskmq.api.workers import PartView
    from taskmq.http import AsyncClient

__all__ = ["doctor"]

_PART_COLUMNS: Final = ("part", "status", "since", "finding", "without")


def doctor(*, watch: str | None = None) -> int:
    """Check settings, broker, state and job store; each finding with its remedy. Exit code 1 when there is a problem.

    With --app the app's queues are looked at, too. Nothing is changed. Through a server it shows whether its store,
    broker, state, schedulers and workers work, since when, and what does not work without each.

    Parameters
    ----------
    watch
        Look a second time after that long, for example 30s: shows what is stuck on its way out of a queue.
    """
    if current_globals().server is not None:
        only_here(watch=watch)
        return _show_health()
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


def _show_health() -> int:
    found = ask(lambda api: cast("AsyncClient", api).health())

    def row(one: "PartView") -> dict[str, Any]:
        lost = "" if one.status in {"works", "absent"} else one.without
        return {**msgspec.structs.asdict(one), "since": text_of_instant(one.since), "without": lost}

    show_rows(_PART_COLUMNS, found.parts, row, folded=("finding", "without"))
    return OK if found.works else FAILED
