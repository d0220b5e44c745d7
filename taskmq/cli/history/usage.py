"""`taskmq usage`: resources that jobs used, by day."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from taskmq.cli.server_link import ask, show_rows
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.units import parse_seconds, to_datetime

if TYPE_CHECKING:
    from taskmq.api.history.figures import DayUsageView

_COLUMNS: Final = (
    "runs",
    "ended",
    "succeeded",
    "failed",
    "cancelled",
    "retried",
    "waiting_seconds",
    "running_seconds",
    "processor_seconds",
)


def usage(
    *,
    since: str = "6d",
    task: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    by: str = "tenant,task,queue",
) -> None:
    """Show what jobs used by day in UTC: runs, ends, waiting, running and processor time in seconds.

    Schedulers count the reports of workers of both lanes, unless they run with `--no-history`. Coroutines share a
    thread, so their processor time is not measured.

    Args:
        since: Length of the period, such as 6d; its first day is shown whole.
        task: Only this task.
        queue: Only this queue.
        tenant: Only this tenant.
        by: Group by these, separated by commas: tenant, task, queue.
    """
    begin = to_datetime(SystemClock().now_ms()) - timedelta(seconds=parse_seconds(since, what="since"))
    parts = tuple(part.strip() for part in by.split(","))

    def row(one: "DayUsageView") -> dict[str, Any]:
        return msgspec.structs.asdict(one)

    found = ask(
        lambda api: api.figures.usage(since=begin, task=task, queue=queue, by=parts), tenant=tenant, may_be_stale=True
    )
    show_rows(("day", *parts, *_COLUMNS), found, row)
