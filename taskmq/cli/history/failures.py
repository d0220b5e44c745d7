"""`taskmq failures`: what has failed, in one list."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.output import note
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.units import parse_seconds, to_datetime

if TYPE_CHECKING:
    from taskmq.api.history.figures import FailureView

__all__ = ["failures"]

_PAGE: Final = 200
_COLUMNS: Final = ("at", "lane", "tenant", "job", "task", "queue", "attempt", "event", "summary", "then")


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
    now = to_datetime(SystemClock().now_ms())
    begin, end = (
        now - timedelta(seconds=parse_seconds(text, what=what)) for text, what in ((since, "since"), (until, "until"))
    )

    async def read(api: Api) -> "tuple[list[FailureView], bool]":
        found: list[FailureView] = []
        cursor: str | None = None
        most = limit if job is None else 1
        while True:
            page = await api.figures.failures(
                lane=lane,
                task=task,
                queue=queue,
                job_id=job,
                error=error,
                since=begin if job is None else None,
                until=None if end == now else end,
                limit=min(most - len(found), _PAGE),
                cursor=cursor,
                traceback=job is not None,
            )
            if not found:
                for gap in page.missing:
                    note(f"{gap.source} may be missing: {gap.why}")
            found += page.items
            cursor = page.next
            if cursor is None or len(found) >= most:
                return found, cursor is not None

    found, is_more = ask(read, tenant=tenant)
    if job is None:
        show_rows(_COLUMNS, found, _row)
        if is_more:
            note("there are more: say a larger --limit, or a shorter --since")
        return OK
    if not found:
        note(f"no failure of job {job!r} is kept, and it has no dead letter; one of the store: taskmq job show")
        return NOT_FOUND
    (one,) = found
    facts = {"worker": one.worker, "seconds": one.seconds, "reason": one.reason}
    show_record(one, lambda: {**_row(one), **facts, "traceback": one.traceback})
    return OK


def _remedy_text(one: "FailureView") -> str:
    """Return what can be done about a failure, or what was done."""
    if one.retried_as:
        return f"retried as {one.retried_as}"
    if one.remedy == "replay":
        return f"replay {one.letter}"
    return one.remedy or ("handled" if one.is_handled else "")


def _row(one: "FailureView") -> dict[str, Any]:
    return {
        "at": text_of_instant(one.at),
        "lane": one.lane,
        "tenant": one.tenant,
        "job": one.job_id,
        "task": one.task or one.name,
        "queue": one.queue,
        "attempt": one.attempt or None,
        "event": one.event,
        "summary": one.summary,
        "then": _remedy_text(one),
        "error": one.error,
        "message": one.message,
    }
