"""`taskmq job logs`: captured log lines of a job's runs."""

import asyncio
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
    from taskmq.api.history.logs import LineView

__all__ = ["logs"]

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

    Parameters
    ----------
    job
        The job's id.
    follow
        Keep printing new lines until the job has ended.
    level
        Minimum level: debug, info, warning, error.
    text
        Only lines that contain this text.
    attempt
        Only lines of this attempt, from 1.
    limit
        Maximum number of lines; not with --follow.
    """

    async def run(api: Api) -> "list[LineView]":
        found: list[LineView] = []
        cursor: str | None = None
        while follow or len(found) <= limit:
            # Read the state before the page, so that the last page includes everything logged before the end.
            is_over = not follow or (await api.jobs.get(job)).state.is_final
            size = MOST_PER_PAGE if follow else min(limit + 1 - len(found), MOST_PER_PAGE)
            page = await api.logs.of_job(job, level=level, text=text, attempt=attempt, limit=size, cursor=cursor)
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
            await asyncio.sleep(_LOOK)
        return found

    found = ask_about(job, run)
    if current_globals().output == "json" and not follow:
        show_rows((), found[:limit], dict)
    else:
        for line in found[:limit]:
            _print(line)
    if len(found) > limit:
        note(f"there are more: --limit {limit * 10}")


def _print(line: "LineView") -> None:
    said = f"{text_of_instant(line.at)} {line.level.upper():<8} {line.logger}: {line.message}"
    print_line(msgspec.to_builtins(line), said)
