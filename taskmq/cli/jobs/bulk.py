"""`taskmq bulk`."""

import asyncio
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, me
from taskmq.cli.exits import CONFLICT, FAILED, NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.cli.typed_values import instant_of
from taskmq.errors import InvalidOption
from taskmq.model.jobs.bulks import BulkAction, BulkState
from taskmq.model.jobs.changes import RetryMode

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.model.jobs.bulks import Bulk
    from taskmq.operations.bulks import BulkOrder, TenantBulks

__all__ = ["BULK_COLUMNS", "app", "check_filter", "code_of", "no_bulk"]

app = App(
    name="bulk",
    help="The same done to many jobs, by schedulers and servers: begin, list, show, abort.",
    result_action="return_value",
)

BULK_COLUMNS: Final = ("bulk", "action", "filter", "state", "matched", "done", "refused", "began", "by")
_LOOK: Final = 0.05


@app.command
@audited
@over_http("bulks:begin")
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
    from taskmq.operations.bulks import BulkOrder

    check_filter(where, everything=everything)
    count = run_with_app(lambda target: _count(target, action, where, again=again))
    if dry_run:
        print_record({"matched": count})
        return OK
    if not confirm(f"{action} {count} jobs?", yes=yes):
        return FAILED
    moment = None if at is None else instant_of("--at", at)
    order = BulkOrder(
        action, where, at=moment, delay=delay, priority=priority, mode=mode, again=again, rate=rate, note=because
    )
    bulk = run_with_app(lambda target: _begin(target, order, is_awaited=wait))
    _print(bulk)
    return code_of(bulk.state, bulk.refused)


@app.command(name="list")
@over_http("bulks:list_bulks")
def list_bulks(*, limit: int = 50) -> int:
    """List what was done to many jobs, the last one first.

    Parameters
    ----------
    limit
        How many at most.
    """
    page = run_with_app(lambda target: _own(target).page(limit=limit))
    print_rows(BULK_COLUMNS, [_row(bulk) for bulk in page.bulks])
    return OK


@app.command
@over_http("bulks:show")
def show(bulk: str, /) -> int:
    """Show how far it is, and which jobs stayed as they were.

    Parameters
    ----------
    bulk
        Its id.
    """
    return _told(bulk, run_with_app(lambda target: _own(target).get(bulk)))


@app.command
@audited
@over_http("bulks:abort")
def abort(bulk: str, /) -> int:
    """Have it be done to no more jobs; up to 20 may be under way.

    Parameters
    ----------
    bulk
        Its id.
    """
    return _told(bulk, run_with_app(lambda target: _own(target).abort(bulk)))


def code_of(state: BulkState, refused: int) -> int:
    """The exit code of a command that has begun a bulk, and may have awaited it."""
    match state:
        case "aborted":
            return FAILED
        case "done":
            return CONFLICT if refused else OK
        case "running":
            return OK


def check_filter(where: str, *, everything: bool) -> None:
    """See that a filter is said, or that everything is meant.

    Raises:
        InvalidOption: neither.
    """
    if not where.strip() and not everything:
        raise InvalidOption("which jobs? Say a filter, or --everything")


def no_bulk(bulk: str) -> int:
    """Say that there is none of that id; the exit code."""
    note(f"there is no bulk operation {bulk!r}: taskmq bulk list")
    return NOT_FOUND


async def _begin(target: "TaskMQ", order: "BulkOrder", *, is_awaited: bool) -> "Bulk":
    from taskmq.durable.service import ServiceGroup
    from taskmq.operations.bulks import BulkRunner

    own = _own(target)
    bulk = await own.begin(order)
    if not is_awaited:
        return bulk
    async with ServiceGroup() as group:
        # Only its own: in a store that was restored, operations may be open that no operator wants any more.
        runner = BulkRunner(target, me=f"command {uuid.uuid4()}", only=bulk.id)
        await group.start(runner, "carries out what is done to many jobs")
        while (found := await own.get(bulk.id)) is not None and found.ended is None:
            await asyncio.sleep(_LOOK)
    return found or bulk


async def _count(target: "TaskMQ", action: "BulkAction", where: str, *, again: bool) -> int:
    from taskmq.model.jobs.bulks import wanted
    from taskmq.operations.tenant_jobs import TenantJobs

    jobs = TenantJobs(target, None, by=me().user)
    return await jobs.count(wanted(await jobs.filter(where), action, again=again))


def _own(target: "TaskMQ") -> "TenantBulks":
    from taskmq.operations.bulks import TenantBulks

    return TenantBulks(target, None, by=me())


def _told(name: str, bulk: "Bulk | None") -> int:
    if bulk is None:
        return no_bulk(name)
    _print(bulk)
    return OK


def _print(bulk: "Bulk") -> None:
    print_record({**_row(bulk), "rate": bulk.rate, "note": bulk.note, "ended": when(bulk.ended)})
    if current_globals().output == "table":
        for one in bulk.refusals:
            note(f"job {one.job_id}: {one.detail}")
        for each in bulk.repeated:
            note(f"job {each.job_id} runs again as {each.retried_as}")


def _row(bulk: "Bulk") -> dict[str, Any]:
    return {
        "bulk": bulk.id,
        "action": bulk.action,
        "filter": bulk.filter,
        "state": bulk.state,
        "matched": bulk.matched,
        "done": bulk.done,
        "refused": bulk.refused,
        "began": when(bulk.began),
        "by": bulk.user,
    }
