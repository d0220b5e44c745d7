"""`taskmq queue`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from taskmq.cli.actor import name_caller
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.output import ask_first, note
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption
from taskmq.model.units import duration_text

if TYPE_CHECKING:
    from taskmq.api.queues import BacklogPart, QueueGroup, QueueLine, QueuePauseView, QueueView

app = Noun(name="queue", help="Manage queues: list, show, pause, resume, move, purge.")

_COLUMNS: Final = ("queue", "stored", "ready", "unsettled", "delayed", "consumers")
FLOW: Final = ("in_per_s", "out_per_s", "empty_in")
"""Columns about the jobs that entered and left a queue."""


@app.command(name="list")
def list_queues(*, queues: Annotated[str | None, Parameter(name=["--queues", "-Q"])] = None) -> None:
    """List the queues of the app (--app), or the named ones.

    Args:
        queues: Queues, separated by commas; also queues of the broker, such as orders.s02.
    """
    names = [name.strip() for name in queues.split(",")] if queues else []
    found = ask(lambda api: api.queues.list(names))
    groups = {group.queue: group for group in found.queues}
    stored = {group.queue: stored_of(group) for group in found.queues if group.stored}
    columns = [name for name in _COLUMNS if name != "stored" or stored]
    flow = FLOW if any(group.entered is not None for group in found.queues) else ()
    paused = ["paused"] if any(line.paused for line in found.items) else []
    show_rows(
        [*columns, *flow, *paused],
        found.items,
        lambda line: {**_row(line), "stored": stored.get(line.queue), **flow_of(groups.get(line.queue))},
    )
    ready, in_hand = sum(line.ready for line in found.items), sum(line.in_hand or 0 for line in found.items)
    sums = f"{ready} ready, {in_hand} in workers"
    if stored:
        more = "" if all(group.is_exact for group in found.queues) else "+"
        sums = f"{sum(group.stored or 0 for group in found.queues)}{more} in the store, {sums}"
    for group in found.queues:
        if group.advice:
            note(f"{group.queue} {group.advice}")
    # Some brokers do not report delayed messages.
    note(sums if found.delayed is None else f"{sums}, {found.delayed} delayed")


@app.command
def show(queue: str, /, *, within: str = "1s") -> None:
    """Show a queue: its contents, properties, users and consumers.

    Args:
        queue: The queue, by its name in the app.
        within: How long to wait for workers to answer.
    """
    found = ask(lambda api: api.queues.get(queue, within=seconds_of(within)))

    def record() -> dict[str, Any]:
        return {
            "queue": found.queue,
            "stored": stored_of(found),
            "oldest": None if found.oldest is None else text_of_instant(found.oldest),
            "ready": found.ready,
            "in_hand": found.in_hand,
            **flow_of(found),
            "advice": found.advice,
            "more_workers": ", ".join(
                f"{one.workers}: {'keeps up' if one.empty_in is None else f'empty in {duration_text(one.empty_in)}'}"
                for one in found.more_workers
            ),
            "by_tenant": _parts_text(found, found.by_tenant, found.tenants),
            "by_priority": _parts_text(found, found.by_priority, len(found.by_priority)),
            "delayed": "held by the broker, which does not count them" if found.delayed is None else found.delayed,
            "dead": found.dead,
            "consumers": found.consumers,
            "paused": _describe_pause(found.paused) or "no",
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
@name_caller
@ask_first("Delete all waiting messages of {queue!r}?")
def purge(queue: str, /) -> None:
    """Delete the waiting messages of a queue, in all its priority classes and shards.

    Jobs of the store are not deleted: cancel them with `taskmq bulk begin cancel queue:NAME`.

    Args:
        queue: The queue, by its name in the app.
    """
    note(f"{ask(lambda api: api.queues.purge(queue))} messages deleted")


@app.command
@name_caller
@ask_first("Move waiting messages of {queue!r} to {to!r}?")
def move(queue: str, to: str, /, *, count: int | None = None, task: str | None = None) -> None:
    """Move the waiting messages of a queue to another one without losing any.

    Jobs of the store and delayed messages stay. The workers of the other queue must have the tasks.

    Args:
        queue: The queue, by its name in the app.
        to: The other queue.
        count: Move at most this many messages, oldest first.
        task: Only messages of matching tasks; wildcards * and ?.
    """
    done = ask(lambda api: api.queues.move(queue, to, count=count, task=task))
    stayed = f", {done.stayed} left: {to} cannot accept them" if done.stayed else ""
    note(f"{done.moved} messages moved{stayed}")


@app.command
@name_caller
def pause(*queues: str, reason: Annotated[str, Parameter(name="--note")] = "") -> None:
    """Pause queues: no worker starts their jobs until they are resumed, even after a restart.

    Workers stop at once, or within ten seconds if they take no commands, and give back jobs that have not started.
    Running jobs continue; messages, delays and retries wait in the queue. Needs a state.

    Args:
        queues: The queues, by their names in the app.
        reason: The reason, shown with the queue.
    """
    names = _check_queues(queues)

    async def run(api: Api) -> None:
        for name in names:
            note(f"queue {name} is {_describe_pause(await api.queues.pause(name, note=reason))}")

    ask(run)


@app.command
@name_caller
def resume(*queues: str) -> None:
    """Resume paused queues.

    Args:
        queues: The queues, by their names in the app.
    """
    names = _check_queues(queues)

    async def run(api: Api) -> None:
        for name in names:
            was_paused = await api.queues.resume(name)
            note(f"queue {name} resumed" if was_paused else f"queue {name} was not paused")

    ask(run)


def _parts_text(queue: "QueueView", parts: "Sequence[BacklogPart]", count: int) -> str:
    """Return the jobs of each part, and how many of `count` parts are not listed."""
    more = "" if queue.is_exact else "+"
    listed = [f"{one.name or '-'}: {one.jobs}{more}" for one in parts]
    return ", ".join(listed) + (f" and {count - len(parts)}{more} more" if count > len(parts) else "")


def _describe_pause(pause: "QueuePauseView | None") -> str:
    """Describe a pause for people."""
    if pause is None:
        return ""
    by = f" by {pause.by}" if pause.by else ""
    return f"paused since {text_of_instant(pause.since)}{by}" + (f" ({pause.note})" if pause.note else "")


def _check_queues(queues: Sequence[str]) -> Sequence[str]:
    if not queues:
        raise InvalidOption("no queue given: name at least one")
    return list(dict.fromkeys(queues))


def _row(line: "QueueLine") -> dict[str, Any]:
    return {
        "queue": line.queue,
        "ready": line.ready,
        "unsettled": line.in_hand,
        "delayed": line.delayed,
        "consumers": line.consumers,
        "paused": _describe_pause(line.paused),
    }


def stored_of(queue: "QueueGroup | QueueView | None") -> int | str | None:
    """Return the number of a queue's jobs in the store; for people with a "+" if there may be more."""
    if queue is None:
        return None
    return queue.stored if queue.is_exact or current_globals().output != "table" else f"{queue.stored}+"


def flow_of(queue: "QueueGroup | QueueView | None") -> dict[str, Any]:
    """Return the columns about the jobs that entered and left a queue; None if they were not sampled."""
    if queue is None:
        return dict.fromkeys(FLOW)
    empty_in: float | str | None = queue.empty_in
    if current_globals().output == "table" and queue.empty_in is not None:
        empty_in = duration_text(queue.empty_in)
    return dict(zip(FLOW, (queue.entered, queue.left, empty_in), strict=True))
