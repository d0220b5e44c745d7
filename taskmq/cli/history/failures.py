"""`taskmq failures`: jobs of the broker lane that ended badly."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.model.units import parse_seconds

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.model.history.rollups import RunFailure

__all__ = ["FAILURE_COLUMNS", "failures"]

FAILURE_COLUMNS: Final = ("at", "job", "task", "queue", "attempt", "event", "error", "message")


@over_http("alerts:failures")
def failures(
    job: str | None = None,
    /,
    *,
    since: str = "1h",
    task: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    error: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
) -> int:
    """List jobs of the broker lane that ended badly, the last one first; or show one with its traceback.

    A scheduler keeps what workers report, unless it runs with `--no-history`. Jobs of the store are in `job list`.

    Parameters
    ----------
    job
        The id of one job: its last failure, whenever it was. Ends with 3 where there is none.
    since
        Of the last so long, such as 2h.
    task
        Of this task alone.
    queue
        Of this queue alone.
    tenant
        Of this tenant alone.

    Error:
        With an error of this type alone.
    limit
        How many at most.
    """
    span = parse_seconds(since, what="since")

    async def run(target: "TaskMQ") -> int:
        from taskmq.contracts.history import FailureFilter
        from taskmq.operations.history import TenantFigures

        begin = await target.sessions.store().now_ms() - round(span * 1000)
        which = FailureFilter(
            task=task, queue=queue, error=error, job=job, since=None if job is not None else max(begin, 0)
        )
        page = await TenantFigures(target, tenant).failures(which, limit=limit if job is None else 1)
        if job is None:
            print_rows(FAILURE_COLUMNS, [_row(one) for one in page.failures])
            return OK
        if not page.failures:
            note(f"no failure of job {job!r} is kept")
            return NOT_FOUND
        (one,) = page.failures
        facts = {"worker": one.worker, "seconds": one.seconds, "reason": one.reason, "tenant": one.tenant}
        print_record({**_row(one), **facts, "traceback": one.traceback})
        return OK

    return run_with_app(run)


def _row(one: "RunFailure") -> dict[str, Any]:
    return {
        "at": when(one.at),
        "job": one.job,
        "task": one.task,
        "queue": one.queue,
        "attempt": one.attempt,
        "event": one.event,
        "error": one.error,
        "message": one.message,
    }
