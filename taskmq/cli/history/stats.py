"""`taskmq stats`: statistics of runs."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from taskmq.cli.server_link import ask, show_rows
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.units import parse_seconds, to_datetime

if TYPE_CHECKING:
    from taskmq.api.history.figures import RollupView

_COLUMNS: Final = (
    "ended",
    "failed",
    "failure_rate",
    "retried",
    "wait_p95",
    "run_p50",
    "run_p95",
)


def stats(
    *,
    since: str = "1h",
    task: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    by: str = "task,queue",
) -> None:
    """Show statistics of runs: throughput, failures, wait times and run times in seconds.

    Schedulers count the reports of workers, unless they run with `--no-history`.

    Args:
        since: Length of the period, such as 2h.
        task: Only this task.
        queue: Only this queue.
        tenant: Only this tenant.
        by: Group by these, separated by commas: task, queue, tenant.
    """
    begin = to_datetime(SystemClock().now_ms()) - timedelta(seconds=parse_seconds(since, what="since"))
    parts = tuple(part.strip() for part in by.split(","))

    def row(one: "RollupView") -> dict[str, Any]:
        return {
            **{part: getattr(one, part) for part in parts},
            "ended": one.ended,
            "failed": one.failed,
            "failure_rate": _round(one.failure_rate),
            "retried": one.outcomes.get("retried", 0),
            "wait_p95": _round(one.wait_p95),
            "run_p50": _round(one.run_p50),
            "run_p95": _round(one.run_p95),
        }

    found = ask(
        lambda api: api.figures.rollups(since=begin, task=task, queue=queue, by=parts),
        tenant=tenant,
        may_be_stale=True,
    )
    show_rows((*parts, *_COLUMNS), found.items, row)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
