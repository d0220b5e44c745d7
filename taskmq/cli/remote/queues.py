"""`taskmq queue` through a server."""

from collections.abc import Collection, Sequence
from typing import Any

from taskmq.api.queues import QueueLine, QueueLines, QueuePauseView
from taskmq.cli.exits import FAILED, OK
from taskmq.cli.operators.queue import QUEUE_COLUMNS, pause_words, sums_text
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.output import confirm, note
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption
from taskmq.http import Client
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue

__all__ = [
    "lines_of",
    "list_queues",
    "move",
    "pause",
    "purge",
    "resume",
    "show",
]


def list_queues(client: Client, *, queues: str | None) -> int:
    names = {name.strip() for name in queues.split(",")} if queues else None
    found = client.queues.list()
    lines = lines_of(found, names)
    paused = {line.queue for line in lines if line.is_paused}

    def row(line: QueueLine) -> dict[str, Any]:
        return {
            "queue": line.queue,
            "ready": line.ready,
            "unsettled": line.in_hand,
            "delayed": line.delayed,
            "consumers": line.consumers,
            "paused": _pause_text(client.queues.get(logical_queue(line.queue)).paused) if line.is_paused else "",
        }

    show_rows((*QUEUE_COLUMNS, *(("paused",) if paused else ())), lines, row)
    ready, in_hand = sum(line.ready for line in lines), sum(line.in_hand or 0 for line in lines)
    note(sums_text(ready, in_hand, found.delayed))
    return OK


def lines_of(found: QueueLines, names: Collection[str] | None) -> list[QueueLine]:
    """The queues that are named, and what no worker can run; None: all."""
    always = {PARKING, UNROUTABLE}
    return [line for line in found.items if names is None or logical_queue(line.queue) in {*names, *always}]


def show(client: Client, *, queue: str, within: str) -> int:
    found = client.queues.get(queue, within=seconds_of(within))

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
            "tasks": ", ".join(found.tasks),
            "workers": ", ".join(found.workers),
        }

    show_record(found, record)
    return OK


def purge(client: Client, *, queue: str, yes: bool) -> int:
    if not confirm(f"Delete all waiting messages of {queue!r}?", yes=yes):
        return FAILED
    note(f"{client.queues.purge(queue)} messages deleted")
    return OK


def move(client: Client, *, queue: str, to: str, count: int | None, task: str | None, yes: bool) -> int:
    if not confirm(f"Move waiting messages of {queue!r} to {to!r}?", yes=yes):
        return FAILED
    done = client.queues.move(queue, to, count=count, task=task)
    said = f"{done.moved} messages moved"
    note(f"{said}, {done.stayed} stayed: {to} cannot take them" if done.stayed else said)
    return OK


def pause(client: Client, *, queues: Sequence[str], reason: str) -> int:
    for name in _named(queues):
        note(f"queue {name} is {_pause_text(client.queues.pause(name, note=reason))}")
    return OK


def resume(client: Client, *, queues: Sequence[str]) -> int:
    for name in _named(queues):
        note(f"queue {name} is resumed" if client.queues.resume(name) else f"queue {name} was not paused")
    return OK


def _named(queues: Sequence[str]) -> list[str]:
    if not queues:
        raise InvalidOption("which queues? Name at least one")
    return list(dict.fromkeys(queues))


def _pause_text(pause: QueuePauseView | None) -> str:
    return "" if pause is None else pause_words(text_of_instant(pause.since), pause.by, pause.note)
