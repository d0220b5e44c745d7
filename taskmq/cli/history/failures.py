"""`taskmq failures`: recent failures in one list."""

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
    error: Annotated[str | None, Parameter(help="Only errors of this type.")] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
) -> int:
    """List recent failures, newest first, and how to run them again; or show one job that was sent.

    Includes jobs of the store that failed, expired, or waited for a failed job; sent jobs, from their workers'
    reports (unless schedulers run with `--no-history`) and from dead letters; and failed runs of workflows, by the
    time they started. Unavailable sources are named; the rest is listed.

    Args:
        job: The id of one sent job: show its last failure with the traceback. Exits with 3 if there is none.
        since: Maximum age, such as 2h.
        until: Minimum age.
        lane: Only jobs submitted to the store, only jobs sent to the broker, or only workflows.
        task: Only this task; workflows have none.
        queue: Only this queue; workflows have none.
        tenant: Only this tenant; '' selects jobs without a tenant.
        limit: Maximum number of failures.
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

    found, is_more = ask(read, tenant=tenant, may_be_stale=True)
    if job is None:
        show_rows(_COLUMNS, found, _row)
        if is_more:
            note("there are more: raise --limit or shorten --since")
        return OK
    if not found:
        note(f"no recorded failure and no dead letter of job {job!r}; for a job of the store use `taskmq job show`")
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
