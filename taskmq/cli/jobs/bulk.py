"""`taskmq bulk`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from cyclopts import App, Parameter

from taskmq.cli.actor import audited
from taskmq.cli.exits import CONFLICT, FAILED, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirm, note, print_record
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import instant_of
from taskmq.errors import InvalidOption
from taskmq.model.jobs.bulks import BulkAction
from taskmq.model.jobs.changes import RetryMode

if TYPE_CHECKING:
    from taskmq.api.jobs import BulkOperationView

__all__ = ["app"]


class _Order(TypedDict, total=False):
    everything: bool
    at: datetime | None
    delay: str | None
    priority: int | None
    mode: RetryMode | None
    again: bool
    note: str


app = App(
    name="bulk",
    help="The same done to many jobs, by schedulers and servers: begin, list, show, abort.",
    result_action="return_value",
)

_COLUMNS: Final = ("bulk", "action", "filter", "state", "matched", "done", "refused", "began", "by")


@app.command
@audited
def begin(
    action: BulkAction,
    where: str = "",
    /,
    *,
    everything: bool = False,
    at: str | None = None,
    delay: str | None = None,
    priority: int | None = None,
    mode: RetryMode | None = None,
    again: Annotated[bool, Parameter(negative="")] = False,
    rate: float | None = None,
    because: Annotated[str, Parameter(name="--note")] = "",
    dry_run: bool = False,
    wait: bool = False,
    yes: bool = False,
) -> int:
    """Have the same be done to all jobs that a filter finds, the newest first, whatever becomes of this process.

    A scheduler or a server carries it out; each job is done to at most once. With `--wait` this process takes part,
    also where neither of them runs, and ends with 6 where jobs stayed as they were.

    Parameters
    ----------
    action
        cancel, hold, release, retry or change.
    where
        A filter as of `job list`.
    everything
        All jobs are meant, where there is no filter.
    at
        Of a change: when they are to run, such as 2027-01-31T09:00+01:00.
    delay
        Of a change: when they are to run from now.
    priority
        Of a change.
    mode
        Of a retry: resume or new, as of `job retry`.
    again
        Retry also jobs that were retried before; without it they are left out.
    rate
        To so many jobs a second.
    because
        Why; for the jobs' histories and the audit.
    dry_run
        Only say how many there are.
    wait
        Return once the operation has ended, and take part in it. If this process stops first, a scheduler or a
        server carries on.
    yes
        Do not ask.
    """
    if not where.strip() and not everything:
        raise InvalidOption("which jobs? Say a filter, or --everything")
    moment = None if at is None else instant_of("--at", at)
    order: _Order = {"everything": everything, "at": moment, "delay": delay, "priority": priority, "mode": mode}
    order |= {"again": again, "note": because}
    count = ask(lambda api: api.jobs.act(action, where, **order, dry_run=True)).matched
    if dry_run:
        print_record({"matched": count})
        return OK
    if not confirm(f"{action} {count} jobs?", yes=yes):
        return FAILED

    async def run(api: Api) -> "BulkOperationView":
        bulk = await api.bulks.begin(action, where, **order, rate=rate)
        return await api.bulks.wait(bulk.bulk_id) if wait else bulk

    bulk = ask(run)
    _show(bulk)
    match bulk.state:
        case "aborted":
            return FAILED
        case "done":
            return CONFLICT if bulk.refused else OK
        case "running":
            return OK


@app.command(name="list")
def list_bulks(*, limit: int = 50) -> None:
    """List what was done to many jobs, the last one first.

    Parameters
    ----------
    limit
        How many at most.
    """
    found = ask(lambda api: first_items(api.bulks.page, limit)).items
    show_rows(_COLUMNS, found, _row)


@app.command
def show(bulk: str, /) -> None:
    """Show how far it is, and which jobs stayed as they were.

    Parameters
    ----------
    bulk
        Its id.
    """
    _show(ask(lambda api: api.bulks.get(bulk)))


@app.command
@audited
def abort(bulk: str, /) -> None:
    """Have it be done to no more jobs; up to 20 may be under way.

    Parameters
    ----------
    bulk
        Its id.
    """
    _show(ask(lambda api: api.bulks.abort(bulk)))


def _show(bulk: "BulkOperationView") -> None:
    show_record(
        bulk, lambda: {**_row(bulk), "rate": bulk.rate, "note": bulk.note, "ended": text_of_instant(bulk.ended)}
    )
    if current_globals().output == "table":
        for one in bulk.refusals:
            note(f"job {one.job_id}: {one.detail}")
        for each in bulk.repeated:
            note(f"job {each.job_id} runs again as {each.retried_as}")


def _row(bulk: "BulkOperationView") -> dict[str, Any]:
    return {
        "bulk": bulk.bulk_id,
        "action": bulk.action,
        "filter": bulk.filter,
        "state": bulk.state,
        "matched": bulk.matched,
        "done": bulk.done,
        "refused": bulk.refused,
        "began": text_of_instant(bulk.began),
        "by": bulk.by,
    }
