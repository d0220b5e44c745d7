"""`taskmq queue`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app, me
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.client.queues import QueuePause
from taskmq.errors import InvalidOption
from taskmq.model.topology import dead_letter_queue, logical_queue
from taskmq.operations import queues as operations

if TYPE_CHECKING:
    from taskmq.app import TaskMQ

__all__ = ["QUEUE_COLUMNS", "app"]

app = App(name="queue", help="Queues: list, show, pause, resume, move, purge.", result_action="return_value")

T = TypeVar("T")

QUEUE_COLUMNS = ("queue", "ready", "unsettled", "delayed", "consumers")


@app.command(name="list")
@over_http("queues:list_queues")
def list_queues(*, queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None) -> None:
    """List the queues of the app (--app) or those named.

    Parameters
    ----------
    queues
        Queues, separated by commas; also single ones at the broker, such as orders.s02.
    """
    names = [name.strip() for name in queues.split(",")] if queues else []

    async def run(target: "TaskMQ") -> tuple[list[dict[str, Any]], str]:
        found, pauses = await operations.list_queues(target, names), await operations.find_pauses(target) or {}
        rows = [{column: getattr(entry, column) for column in QUEUE_COLUMNS} for entry in found.queues]
        ready, in_hand = sum(each.ready for each in found.queues), sum(each.unsettled or 0 for each in found.queues)
        sums = sums_text(ready, in_hand, found.delayed)
        return [{**row, "paused": pauses.get(_work_queue(row["queue"]))} for row in rows], sums

    rows, sums = run_with_app(run)
    paused = ("paused",) if any(row["paused"] for row in rows) else ()
    if current_globals().output == "table":
        rows = [{**row, "paused": pause_text(row["paused"])} for row in rows]
    print_rows((*QUEUE_COLUMNS, *paused), rows)
    note(sums)


def sums_text(ready: int, in_hand: int, delayed: int | None) -> str:
    """What is in all queues; nothing of delayed jobs where the broker does not tell how many there are."""
    known = f"{ready} ready, {in_hand} in workers' hands"
    return known if delayed is None else f"{known}, {delayed} delayed"


@app.command
@over_http("queues:show")
def show(queue: str, /, *, within: str = "1s") -> None:
    """Show one queue: what is in it, how it is made, who uses it and who consumes it.

    Parameters
    ----------
    queue
        The queue, as people name it.
    within
        How long to wait for the answers of workers.
    """
    report = run_with_app(lambda target: operations.report_queue(target, queue, within=seconds_of(within)))
    is_table = current_globals().output == "table"
    described = report.queue
    print_record(
        {
            "queue": described.name,
            "ready": report.ready,
            "in_hand": report.in_hand,
            "delayed": "at the broker, which does not count them"
            if is_table and report.delayed is None
            else report.delayed,
            "dead": report.dead,
            "consumers": report.consumers,
            "paused": (pause_text(report.paused) or "no") if is_table else report.paused,
            "kind": described.kind,
            "priorities": None if described.ordered or described.lanes else described.priorities,
            "ordered": described.ordered,
            "lanes": described.lanes,
            "max_length": described.max_length,
            "max_bytes": described.max_bytes,
            "delivery_limit": described.delivery_limit,
            "tasks": ", ".join(report.tasks) if is_table else report.tasks,
            "workers": ", ".join(report.workers) if is_table else report.workers,
            "parts": "\n".join(
                f"  {part.queue}: {part.ready} ready, {part.consumers} consumers" for part in report.parts
            )
            if is_table
            else report.parts,
        }
    )


@app.command
@audited
@over_http("queues:purge")
def purge(queue: str, /, *, yes: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Delete the waiting messages of a queue, in all its priority classes or shards.

    Jobs of the store are not deleted: cancel them by `taskmq bulk begin cancel queue:NAME`.

    Parameters
    ----------
    queue
        The queue, as people name it.
    yes
        Do not ask.
    """
    if not confirm(f"Delete all waiting messages of {queue!r}?", yes=yes):
        return FAILED
    count = change_with_app(lambda target: operations.purge_queue(target, queue), "queue.purge", [queue])
    note(f"{count} messages deleted")
    return OK


@app.command
@audited
@over_http("queues:move")
def move(
    queue: str,
    to: str,
    /,
    *,
    count: int | None = None,
    task: str | None = None,
    yes: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Move the waiting messages of a queue to another one, without losing one.

    Jobs of the store stay, as does what waits for its time. The workers of the other queue need the tasks.

    Parameters
    ----------
    queue
        The queue, as people name it.
    to
        The other one.
    count
        At most so many, the oldest first.
    task
        Only messages of tasks of this name, with * and ?.
    yes
        Do not ask.
    """
    from taskmq.operations.queue_moves import move_messages

    if not confirm(f"Move waiting messages of {queue!r} to {to!r}?", yes=yes):
        return FAILED
    moved, stayed = change_with_app(
        lambda target: move_messages(target, queue, to, count=count, task=task),
        "queue.move",
        [queue],
        after={"to": to, "count": count, "task": task},
    )
    note(f"{moved} messages moved, {stayed} stayed: {to} cannot take them" if stayed else f"{moved} messages moved")
    return OK


@app.command
@audited
@over_http("queues:pause")
def pause(*queues: str, reason: Annotated[str, Parameter(name="--note")] = "") -> int:
    """Have no worker start anything of queues until they are resumed; it survives restarts.

    Workers stop at once, those that take no commands within ten seconds, and give back what they have not begun.
    What runs goes on; sends, delays and retries wait in the queue. Needs a state.

    Parameters
    ----------
    queues
        The queues, as people name them.
    reason
        Why; shown wherever the queue is.
    """
    by = me().user
    for name, paused in change_with_app(
        lambda target: operations.pause_queues(target, _named(queues), note=reason, by=by),
        "queue.pause",
        queues,
        why=reason,
    ).items():
        note(f"queue {name} is {pause_text(paused)}")
    return OK


@app.command
@audited
@over_http("queues:resume")
def resume(*queues: str) -> int:
    """Have workers take from paused queues again.

    Parameters
    ----------
    queues
        The queues, as people name them.
    """
    resumed = change_with_app(lambda target: operations.resume_queues(target, _named(queues)), "queue.resume", queues)
    for name in dict.fromkeys(queues):
        note(f"queue {name} is resumed" if name in resumed else f"queue {name} was not paused")
    return OK


def pause_text(pause: QueuePause | None) -> str:
    """Since when, by whom and why a queue is paused, for people."""
    return "" if pause is None else pause_words(when(pause.since), pause.by, pause.note)


def pause_words(since: str, by: str, note: str) -> str:
    """Describe a pause."""
    return f"paused since {since}" + (f" by {by}" if by else "") + (f" ({note})" if note else "")


def _named(queues: Sequence[str]) -> Sequence[str]:
    if not queues:
        raise InvalidOption("which queues? Name at least one")
    return queues


def _work_queue(physical: str) -> str:
    return "" if physical == dead_letter_queue(physical) else logical_queue(physical)
