"""`taskmq queue` and `taskmq workflow` through a server."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from taskmq.api.queues import QueueLine, QueueLines, QueuePauseView
from taskmq.api.workers import StepView, WorkflowLineView
from taskmq.cli.exits import FAILED, NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.queue import QUEUE_COLUMNS, pause_words, sums_text
from taskmq.cli.operators.workers import seconds_of
from taskmq.cli.operators.workflow import STEP_COLUMNS, WORKFLOW_COLUMNS, in_utc
from taskmq.cli.output import confirm, note, print_record, print_rows, printable, write_line
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption, RequestRefused
from taskmq.http import Client
from taskmq.model.topology import PARKING, UNROUTABLE, logical_queue
from taskmq.operations.workflow_graph import GraphFormat, GraphStep, graph_text
from taskmq.workflow.catalogue import read_states

__all__ = [
    "cancel_workflow",
    "close_workflow",
    "lines_of",
    "list_queues",
    "list_workflows",
    "move",
    "pause",
    "purge",
    "redrive_workflow",
    "resume",
    "show",
    "show_graph",
    "show_workflow",
]

_CONFLICT = 409


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


def list_workflows(
    client: Client,
    *,
    name: str | None,
    state: str,
    tenant: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> int:
    own = client if tenant is None else client.for_tenant(tenant)
    found = own.workflows.list(
        name=name,
        states=sorted(read_states(state)),
        since=in_utc(since),
        until=in_utc(until),
        page_size=max(min(limit, 200), 1),
    )

    def row(line: WorkflowLineView) -> dict[str, Any]:
        return {
            "workflow": line.workflow_id,
            "name": line.name,
            "state": line.state,
            "started": text_of_instant(line.started),
            "nodes": line.nodes,
            "unfinished": line.unfinished,
        }

    show_rows(WORKFLOW_COLUMNS, [*islice(found, max(limit, 0))], row)
    return OK


def show_workflow(client: Client, *, workflow: str) -> int:
    found = client.workflows.get(workflow)
    if current_globals().output != "table":
        show_record(found, dict)
        return OK
    facts = {"workflow": found.workflow_id, "state": found.state, "cancelled": found.cancelled}
    print_record({name: value for name, value in facts.items() if value is not None})
    print_rows(STEP_COLUMNS, [_step_row(step) for step in found.steps])
    return OK


def show_graph(client: Client, *, workflow: str, form: GraphFormat) -> int:
    found = client.workflows.get(workflow)
    if current_globals().output != "table":
        show_record(found, dict)
        return OK
    steps = [GraphStep(step.step, step.task, step.state, step.after, step.part_of) for step in found.steps]
    write_line(printable(graph_text(steps, form)))
    return OK


def close_workflow(client: Client, *, workflow: str) -> int:
    client.workflows.close(workflow)
    note(f"batch {workflow} is closed")
    return OK


def cancel_workflow(client: Client, *, workflow: str, reason: str) -> int:
    try:
        client.workflows.cancel(workflow, reason=reason)
    except RequestRefused as error:
        if error.status != _CONFLICT:
            raise
        note(f"workflow {workflow} has ended already")
        return NOT_FOUND
    note(f"workflow {workflow} is cancelled")
    return OK


def redrive_workflow(client: Client, *, workflow: str) -> int:
    done = client.workflows.redrive(workflow)
    letters = f"{done.letters} dead letter{'' if done.letters == 1 else 's'} removed"
    if done.steps:
        note(f"workflow {workflow}: {done.steps} steps run again, {letters}")
    else:
        note(f"workflow {workflow}: nothing to run again, it has not ended or everything has succeeded; {letters}")
    return OK


def _named(queues: Sequence[str]) -> list[str]:
    if not queues:
        raise InvalidOption("which queues? Name at least one")
    return list(dict.fromkeys(queues))


def _pause_text(pause: QueuePauseView | None) -> str:
    return "" if pause is None else pause_words(text_of_instant(pause.since), pause.by, pause.note)


def _step_row(step: StepView) -> dict[str, Any]:
    return {
        "step": step.step,
        "task": step.task,
        "state": step.state,
        "attempts": step.attempts,
        "error": step.error,
    }
