"""`taskmq failures`: what has failed, in one list."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.model.units import parse_seconds

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.operations.history import FailureLine

__all__ = ["FAILURE_COLUMNS", "failures", "note_more", "remedy_text"]

FAILURE_COLUMNS: Final = ("at", "lane", "tenant", "job", "task", "queue", "attempt", "event", "summary", "then")


@over_http("alerts:failures")
def failures(
    job: str | None = None,
    /,
    *,
    since: str = "12h",
    until: str = "0s",
    lane: Literal["store", "broker", "workflow"] | None = None,
    task: str | None = None,
    queue: str | None = None,
    tenant: str | None = None,
    error: Annotated[str | None, Parameter(help="With an error of this type alone.")] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
) -> int:
    """List what has failed, the last one first, and what runs it again; or show one job that was sent.

    Jobs of the store that have failed, expired, or waited for one that did; jobs that were sent, by what a scheduler
    keeps of their workers' reports (unless it runs with `--no-history`) and by their dead letters; workflows, at the
    time they were sent. Sources that do not answer are named, and the rest is listed.

    Parameters
    ----------
    job
        The id of one job that was sent: its last failure, with its traceback. Ends with 3 where there is none.
    since
        Of the last so long, such as 2h.
    until
        Up to so long ago.
    lane
        Jobs that were submitted to the store, jobs that were sent to the broker, or workflows alone.
    task
        Of this task alone; workflows have none.
    queue
        Of this queue alone; workflows have none.
    tenant
        Of this tenant alone; '' what has none.
    limit
        How many at most.
    """
    begin, end = parse_seconds(since, what="since"), parse_seconds(until, what="until")

    async def run(target: "TaskMQ") -> int:
        from taskmq.operations.history import FailureChoice, TenantFailures

        now = target.sessions.clock.now_ms()
        which = FailureChoice(
            lane=lane,
            task=task,
            queue=queue,
            error=error,
            job=job,
            since=None if job is not None else max(now - round(begin * 1000), 0),
            until=None if not end else max(now - round(end * 1000), 0),
        )
        page = await TenantFailures(target, tenant).page(which, limit=limit if job is None else 1)
        for gap in page.gaps:
            note(f"{gap.source} may be missing: {gap.why}")
        if job is None:
            print_rows(FAILURE_COLUMNS, [_row(one) for one in page.lines])
            note_more(is_more=page.after is not None)
            return OK
        if not page.lines:
            note(f"no failure of job {job!r} is kept, and it has no dead letter; one of the store: taskmq job show")
            return NOT_FOUND
        (one,) = page.lines
        facts = {"worker": one.worker, "seconds": one.seconds, "reason": one.reason}
        print_record({**_row(one), **facts, "traceback": one.traceback})
        return OK

    return run_with_app(run)


def note_more(*, is_more: bool) -> None:
    """Say that the list goes on."""
    if is_more:
        note("there are more: say a larger --limit, or a shorter --since")


def remedy_text(remedy: str, letter: str | None, *, is_handled: bool | None, retried_as: str) -> str:
    """Return what can be done about a failure, or what was done."""
    if retried_as:
        return f"retried as {retried_as}"
    if remedy == "replay":
        return f"replay {letter}"
    return remedy or ("handled" if is_handled else "")


def _row(one: "FailureLine") -> dict[str, Any]:
    return {
        "at": when(one.at),
        "lane": one.lane,
        "tenant": one.tenant,
        "job": one.id,
        "task": one.task or one.name,
        "queue": one.queue,
        "attempt": one.attempt or None,
        "event": one.event,
        "summary": one.summary,
        "then": remedy_text(one.remedy, one.letter, is_handled=one.is_handled, retried_as=one.retried_as),
        "error": one.error,
        "message": one.message,
    }
