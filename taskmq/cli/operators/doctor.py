"""`taskmq doctor`."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from taskmq.cli.exits import FAILED, OK, UNREACHABLE
from taskmq.cli.globals import current_globals, open_app, refuse_local_options
from taskmq.cli.output import print_rows
from taskmq.cli.server_link import ask, show_rows, text_of_instant
from taskmq.model.units import parse_duration
from taskmq.operations.diagnosis.doctor import examine

if TYPE_CHECKING:
    from taskmq.api.health import PartView
    from taskmq.http import AsyncClient

_PART_COLUMNS: Final = ("part", "status", "since", "finding", "without")


def doctor(*, watch: str | None = None) -> int:
    """Check settings, broker, state and job store, and suggest fixes. Exits with 1 if there is a problem.

    With --app, checks the app's queues, too. Changes nothing. Through a server, shows the health of its store,
    broker, state, schedulers and workers, and what does not work without each.

    Args:
        watch: Check again after this time, such as 30s, to find messages stuck in a queue.
    """
    if current_globals().server is not None:
        refuse_local_options(watch=watch)
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
