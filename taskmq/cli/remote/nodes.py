"""`taskmq node` through a server."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from taskmq.api.nodes import AllocationView, HostNodeView
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.nodes.node import ALLOCATION_COLUMNS, NODE_COLUMNS
from taskmq.cli.output import confirm, note
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.errors import RequestRefused
from taskmq.http import Client
from taskmq.model.resources import amounts_text

__all__ = ["allocations", "drain", "list_nodes", "remove", "resume", "show"]

_NOT_FOUND = 404


def list_nodes(client: Client) -> int:
    show_rows(NODE_COLUMNS, client.nodes.list(), _row)
    return OK


def show(client: Client, *, node: str) -> int:
    return _told(node, client.nodes.get)


def drain(client: Client, *, node: str) -> int:
    return _told(node, client.nodes.drain)


def resume(client: Client, *, node: str) -> int:
    return _told(node, client.nodes.resume)


def remove(client: Client, *, node: str, yes: bool) -> int:
    if not confirm(f"Forget node {node} and its allocations?", yes=yes):
        return OK
    return _told(node, client.nodes.remove)


def allocations(client: Client, *, node: str | None, job: str | None, ended: bool, limit: int) -> int:
    names = {each.node_id: each.name for each in client.nodes.list()}

    def row(each: AllocationView) -> dict[str, Any]:
        return {
            "allocation": each.allocation_id,
            "node": names.get(each.node_id, each.node_id),
            "job": each.job_id,
            "tenant": each.tenant,
            "task": each.task,
            "amounts": amounts_text(each.amounts),
            "since": text_of_instant(each.start_time),
            "ended": text_of_instant(each.end_time),
        }

    found: list[AllocationView] = []
    cursor: str | None = None
    while len(found) < limit:
        page = client.resources.usage(
            node_id=node, job_id=job, is_open=not ended, limit=min(limit - len(found), 200), cursor=cursor
        )
        found += page.items
        if (cursor := page.next) is None:
            break
    show_rows(ALLOCATION_COLUMNS, [*islice(found, limit)], row)
    return OK


def _told(name: str, ask: Callable[[str], HostNodeView]) -> int:
    try:
        node = ask(name)
    except RequestRefused as error:
        if error.status != _NOT_FOUND:
            raise
        note(f"there is no node {name!r}: taskmq node list")
        return NOT_FOUND
    show_record(
        node,
        lambda: {**_row(node), "id": node.node_id, "address": node.ip_address, "epoch": node.epoch},
    )
    return OK


def _row(node: HostNodeView) -> dict[str, Any]:
    return {
        "node": node.name,
        "state": node.status,
        "capacity": amounts_text(node.capacity),
        "used": amounts_text(node.used),
        "labels": ", ".join(f"{name}={value}" for name, value in node.labels.items()),
        "heartbeat": text_of_instant(node.heartbeat_at),
    }
