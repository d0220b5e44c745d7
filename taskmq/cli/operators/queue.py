"""`taskmq queue`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.output import confirmed, note
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption

if TYPE_CHECKING:
    from taskmq.api.queues import QueueLine, QueuePauseView

__all__ = ["app"]

app = App(name="queue", help="Queues: list, show, pause, resume, move, purge.", result_action="return_value")

_COLUMNS: Final = ("queue", "ready", "unsettled", "delayed", "consumers")


@app.command(name="list")
def list_queues(*, queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None) -> None:
    """List the queues of the app (--app) or those named.

    Parameters
    ----------
    queues
        Queues, separated by commas; also single ones at the broker, such as orders.s02.
    """
    names = [name.strip() for name in queues.split(",")] if queues else []
    found = ask(lambda api: api.queues.list(names))
    paused = ("paused",) if any(line.paused for line in found.items) else ()
    show_rows((*_COLUMNS, *paused), found.items, _row)
    ready, in_hand = sum(line.ready for line in found.items), sum(line.in_hand or 0 for line in found.items)
    sums = f"{ready} ready, {in_hand} in workers' hands"
    # A broker may not tell how many are delayed.
    note(sums if found.delayed is None else f"{sums}, {found.delayed} delayed")


@app.command
def show(queue: str, /, *, within: str = "1s") -> None:
    """Show one queue: what is in it, how it is made, who uses it and who consumes it.

    Parameters
    ----------
    queue
        The queue, as people name it.
    within
        How long to wait for the answers of workers.
    """
    found = ask(lambda api: api.queues.get(queue, within=seconds_of(within)))

    def record() -> dict[str, Any]:
        return {
            "queue": found.queue,
            "ready": found.ready,
            "in_hand": found.in_hand,
            "delayed": "at the broker, which does not count them" if found.delayed is None else found.delayed,
            "dead": found.dead,
            "consumers": found.consumers,
            "paused": _pause_text(found.paused) or "no",
            "kind": found.kind,
            "priorities": found.priorities,
            "ordered": found.ordered,
            "lanes": found.lanes,
            "max_length": found.max_length,
            "max_bytes": found.max_bytes,
            "delivery_limit": found.delivery_limit,
            "tasks": ", ".join(found.tasks),
            "workers": ", ".join(found.workers),
            "parts": "\n".join(
                f"  {part.queue}: {part.ready} ready, {part.consumers} consumers" for part in found.parts
            ),
        }

    show_record(found, record)


@app.command
@audited
@confirmed("Delete all waiting messages of {queue!r}?")
def purge(queue: str, /) -> None:
    """Delete the waiting messages of a queue, in all its priority classes or shards.

    Jobs of the store are not deleted: cancel them by `taskmq bulk begin cancel queue:NAME`.

    Parameters
    ----------
    queue
        The queue, as people name it.
    """
    note(f"{ask(lambda api: api.queues.purge(queue))} messages deleted")


@app.command
@audited
@confirmed("Move waiting messages of {queue!r} to {to!r}?")
def move(queue: str, to: str, /, *, count: int | None = None, task: str | None = None) -> None:
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
    """
    done = ask(lambda api: api.queues.move(queue, to, count=count, task=task))
    stayed = f", {done.stayed} stayed: {to} cannot take them" if done.stayed else ""
    note(f"{done.moved} messages moved{stayed}")


@app.command
@audited
def pause(*queues: str, reason: Annotated[str, Parameter(name="--note")] = "") -> None:
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
    names = _named(queues)

    async def run(api: Api) -> None:
        for name in names:
            note(f"queue {name} is {_pause_text(await api.queues.pause(name, note=reason))}")

    ask(run)


@app.command
@audited
def resume(*queues: str) -> None:
    """Have workers take from paused queues again.

    Parameters
    ----------
    queues
        The queues, as people name them.
    """
    names = _named(queues)

    async def run(api: Api) -> None:
        for name in names:
            was_paused = await api.queues.resume(name)
            note(f"queue {name} is resumed" if was_paused else f"queue {name} was not paused")

    ask(run)


def _pause_text(pause: "QueuePauseView | None") -> str:
    """Describe a pause for people."""
    if pause is None:
        return ""
    by = f" by {pause.by}" if pause.by else ""
    return f"paused since {text_of_instant(pause.since)}{by}" + (f" ({pause.note})" if pause.note else "")


def _named(queues: Sequence[str]) -> Sequence[str]:
    if not queues:
        raise InvalidOption("which queues? Name at least one")
    return list(dict.fromkeys(queues))


def _row(line: "QueueLine") -> dict[str, Any]:
    return {
        "queue": line.queue,
        "ready": line.ready,
        "unsettled": line.in_hand,
        "delayed": line.delayed,
        "consumers": line.consumers,
        "paused": _pause_text(line.paused),
    }
