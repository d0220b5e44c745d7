"""`taskmq stats`: what was counted of a time."""

from typing import TYPE_CHECKING, Any, Final

from taskmq.cli.exits import OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import print_rows
from taskmq.cli.server_link import over_http
from taskmq.model.units import parse_seconds

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = ["FIGURE_COLUMNS", "parts_of", "rounded", "stats"]

FIGURE_COLUMNS: Final = (
    "ended",
    "failed",
    "failure_rate",
    "retried",
    "wait_p95",
    "run_p50",
    "run_p95",
)


@over_http("alerts:stats")
def stats(
    *,
    since: str = "1h",
    task: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    by: str = "task,queue",
) -> int:
    """Show what was counted of runs: throughput, failures, waits and run times in seconds.

    A scheduler counts what workers report, of both lanes, unless it runs with `--no-history`.

    Parameters
    ----------
    since
        Of the last so long, such as 2h.
    task
        Of this task alone.
    queue
        Of this queue alone.
    tenant
        Of this tenant alone.
    by
        A line for each of these: task, queue, tenant, with commas between.
    """
    span = parse_seconds(since, what="since")

    async def run(target: "TaskMQ") -> int:
        from taskmq.operations.history import TenantFigures

        begin = await target.sessions.store().now_ms() - round(span * 1000)
        figures = TenantFigures(target, tenant)
        _, _, found = await figures.totals(since=max(begin, 0), task=task, queue=queue, by=parts_of(by))
        rows: list[dict[str, Any]] = [
            {
                **{part: getattr(one.key, part) for part in parts_of(by)},
                "ended": one.ended,
                "failed": one.failed,
                "failure_rate": rounded(one.failure_rate),
                "retried": one.outcomes.get("retried", 0),
                "wait_p95": rounded(one.waited.quantile(0.95)),
                "run_p50": rounded(one.ran.quantile(0.5)),
                "run_p95": rounded(one.ran.quantile(0.95)),
            }
            for one in found
        ]
        print_rows((*parts_of(by), *FIGURE_COLUMNS), rows)
        return OK

    return run_with_app(run)


def parts_of(by: str) -> tuple[str, ...]:
    """The parts by which figures are grouped, as `--by` says them."""
    return tuple(part.strip() for part in by.split(","))


def rounded(value: float | None) -> float | None:
    """A figure for people."""
    return None if value is None else round(value, 4)
