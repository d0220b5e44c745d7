"""`taskmq job logs`: captured log lines of a job's runs."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.values import MOST_PER_PAGE
from taskmq.cli.actor import of_tenant
from taskmq.cli.globals import current_globals
from taskmq.cli.jobs.hints import ask_about
from taskmq.cli.output import note, print_line
from taskmq.cli.server_link import Api, show_rows, text_of_instant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from taskmq.api.history.logs import LineList, LineView

_LOOK: Final = 1.0


@of_tenant
def logs(
    job: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    level: str = "debug",
    text: str = "",
    attempt: int | None = None,
    limit: int = 1_000,
) -> None:
    """Print the captured log lines of a job's runs, oldest first.

    Workers capture log lines with `--capture-logs`.

    Args:
        job: The job's id.
        follow: Keep printing new lines until the job has ended.
        level: Minimum level: debug, info, warning, error.
        text: Only lines that contain this text.
        attempt: Only lines of this attempt, from 1.
        limit: Maximum number of lines; not with --follow.
    """

    def lines(api: Api) -> "Awaitable[list[LineView] | None]":
        async def is_over() -> bool:
            return (await api.jobs.get(job)).state.is_final

        pages = partial(api.logs.of_job, job, level=level, text=text, attempt=attempt)
        return read_log(pages, limit, is_over if follow else None)

    print_log(ask_about(job, lines), limit)


async def read_log(
    pages: "Callable[..., Awaitable[LineList]]", limit: int, is_over: "Callable[[], Awaitable[bool]] | None"
) -> "list[LineView] | None":
    """Return up to `limit` + 1 lines; with `is_over`, print all lines until it returns True, and return None."""
    found: list[LineView] = []
    cursor: str | None = None
    while is_over or len(found) <= limit:
        # Read the state before the page, so that the last page includes everything logged before the end.
        is_last = is_over is None or await is_over()
        size = MOST_PER_PAGE if is_over else min(limit + 1 - len(found), MOST_PER_PAGE)
        page = await pages(limit=size, cursor=cursor)
        cursor = page.next or cursor
        if is_over:
            for line in page.items:
                _print(line)
        else:
            found += page.items
        if page.items or page.is_bounded:
            continue
        if is_last:
            break
        await asyncio.sleep(_LOOK)
    return None if is_over else found


def print_log(found: "Sequence[LineView] | None", limit: int) -> None:
    """Print up to `limit` lines, and a note if there are more; nothing if they were printed already."""
    if found is None:
        return
    if current_globals().output == "json":
        show_rows((), found[:limit], dict)
    else:
        for line in found[:limit]:
            _print(line)
    if len(found) > limit:
        note(f"there are more: --limit {limit * 10}")


def _print(line: "LineView") -> None:
    step = "" if not line.step else f"{line.step}: " if line.child is None else f"{line.step}[{line.child}]: "
    said = f"{text_of_instant(line.at)} {line.level.upper():<8} {step}{line.logger}: {line.message}"
    print_line(msgspec.to_builtins(line), said)
