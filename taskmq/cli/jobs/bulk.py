"""`taskmq bulk`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from cyclopts import Parameter

from taskmq.cli.actor import name_caller
from taskmq.cli.exits import CONFLICT, FAILED, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.output import confirm, note, print_record
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import instant_of
from taskmq.errors import InvalidOption
from taskmq.model.jobs.bulks import BulkAction
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import count_text

if TYPE_CHECKING:
    from taskmq.api.jobs import BulkOperationView


class _Order(TypedDict, total=False):
    everything: bool
    at: datetime | None
    delay: str | None
    priority: int | None
    mode: RetryMode | None
    again: bool
    note: str


app = Noun(name="bulk", help="Act on many jobs at once: begin, list, show, abort.")

_COLUMNS: Final = ("bulk", "action", "filter", "state", "matched", "done", "refused", "began", "by")


@app.command
@name_caller
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
    """Apply an action to all jobs that match a filter, newest first.

    A scheduler or a server carries it out, even if this process stops. Each job is acted on at most once. With
    `--wait` this process takes part, even if no scheduler or server runs, and exits with 6 if some jobs were left
    unchanged.

    Args:
        action: cancel, hold, release, retry or change.
        where: A filter, as in `job list`.
        everything: Act on all jobs; required without a filter.
        at: For change: the new time to run, such as 2027-01-31T09:00+01:00.
        delay: For change: the new time to run, from now.
        priority: For change: the new priority.
        mode: For retry: resume or new, as in `job retry`.
        again: For retry: include jobs that were retried before.
        rate: Maximum number of jobs per second.
        because: The reason, for the jobs' histories and the audit.
        dry_run: Only print how many jobs match.
        wait: Take part in the operation and return when it has ended.
            If this process stops first, a scheduler or a server carries on.
        yes: Skip the confirmation prompt.
    """
    if not where.strip() and not everything:
        raise InvalidOption("no jobs selected: pass a filter or --everything")
    moment = None if at is None else instant_of("--at", at)
    order: _Order = {"everything": everything, "at": moment, "delay": delay, "priority": priority, "mode": mode}
    order |= {"again": again, "note": because}
    count = ask(lambda api: api.jobs.act(action, where, **order, dry_run=True)).matched
    if dry_run:
        print_record({"matched": count})
        return OK
    if not confirm(f"{action} {count_text(count, 'job')}?", yes=yes):
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
    """List bulk operations, newest first.

    Args:
        limit: Maximum number of operations.
    """
    found = ask(lambda api: first_items(api.bulks.page, limit)).items
    show_rows(_COLUMNS, found, _row)


@app.command
def show(bulk: str, /) -> None:
    """Show the progress of a bulk operation, and which jobs were left unchanged.

    Args:
        bulk: The operation's id.
    """
    _show(ask(lambda api: api.bulks.get(bulk)))


@app.command
@name_caller
def abort(bulk: str, /) -> None:
    """Stop a bulk operation. Up to 20 jobs in progress may still be changed.

    Args:
        bulk: The operation's id.
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
            note(f"job {each.job_id} retried as {each.retried_as}")
        if bulk.reattached:
            note(f"dependents that wait for retried jobs: {bulk.reattached}")


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
