"""`taskmq job logs`: what the runs of a job have logged."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from taskmq.cli.actor import of_tenant
from taskmq.cli.exits import OK
from taskmq.cli.globals import current_globals
from taskmq.cli.jobs.hints import run_about
from taskmq.cli.output import note, print_line, print_rows, when
from taskmq.cli.server_link import over_http

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.model.history.logs import StoredLine

__all__ = ["logs"]


@of_tenant
@over_http("logs:logs")
def logs(
    job: str,
    /,
    *,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative="")] = False,
    level: str = "debug",
    text: str = "",
    limit: int = 1_000,
) -> int:
    """Print what a job's runs have logged, the earliest first.

    Workers keep it where they run with `--capture-logs`.

    Parameters
    ----------
    job
        The job's id.
    follow
        Go on as further lines come, until the job has ended.
    level
        Lines from this one on: debug, info, warning, error.
    text
        Only lines that have it.
    limit
        How many at most; not with --follow.
    """

    async def run(target: "TaskMQ") -> int:
        if follow:
            async for line in target.jobs.follow_logs(job, level=level, text=text):
                _print(line)
            return OK
        lines: list[StoredLine] = []
        after: int | None = None
        while len(lines) <= limit:
            page = await target.jobs.alogs(job, level=level, text=text, after=after, limit=limit + 1 - len(lines))
            lines += page.lines
            after = page.after
            if not page.is_bounded:
                break
        if current_globals().output == "json":
            print_rows((), [_record(line) for line in lines[:limit]])
        else:
            for line in lines[:limit]:
                _print(line)
        if len(lines) > limit:
            note(f"there are more: --limit {limit * 10}")
        return OK

    return run_about(job, run)


def _print(line: "StoredLine") -> None:
    record = _record(line)
    print_line(record, f"{when(line.at)} {str(record['level']).upper():<8} {line.logger}: {line.message}")


def _record(line: "StoredLine") -> dict[str, Any]:
    from taskmq.model.history.logs import level_name

    return {
        "number": line.number,
        "at": line.at,
        "level": level_name(line.level),
        "attempt": line.attempt,
        "worker": line.worker,
        "logger": line.logger,
        "message": line.message,
    }
