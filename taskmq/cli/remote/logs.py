"""`taskmq job logs` through a server."""

import time
from typing import Final

import msgspec

from taskmq.api.history.logs import LineView
from taskmq.cli.exits import OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import note, print_line, print_rows
from taskmq.cli.server_link import text_of_instant
from taskmq.http import Client
from taskmq.model.states import JobState

__all__ = ["logs"]

_PAGE: Final = 200
_LOOK: Final = 1.0


def logs(client: Client, *, job: str, follow: bool, level: str, text: str, limit: int) -> int:
    found: list[LineView] = []
    cursor: str | None = None
    while follow or len(found) <= limit:
        # Before the page: what was logged before its end is there when the end is.
        is_over = not follow or JobState(client.jobs.get(job).state).is_final
        size = _PAGE if follow else min(limit + 1 - len(found), _PAGE)
        page = client.logs.of_job(job, level=level, text=text, limit=size, cursor=cursor)
        cursor = page.next or cursor
        if follow:
            for line in page.items:
                _print(line)
        else:
            found += page.items
        if page.items or page.is_bounded:
            continue
        if is_over:
            break
        time.sleep(_LOOK)
    if current_globals().output == "json" and not follow:
        print_rows((), [msgspec.to_builtins(line) for line in found[:limit]])
    else:
        for line in found[:limit]:
            _print(line)
    if len(found) > limit:
        note(f"there are more: --limit {limit * 10}")
    return OK


def _print(line: LineView) -> None:
    record = msgspec.to_builtins(line)
    print_line(record, f"{text_of_instant(line.at)} {line.level.upper():<8} {line.logger}: {line.message}")
