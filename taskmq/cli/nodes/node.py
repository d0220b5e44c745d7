"""`taskmq node`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskmq.cli.actor import name_caller
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.model.resources import amounts_text
from taskmq.model.units import duration_text

if TYPE_CHECKING:
    from taskmq.api.nodes import AllocationView, HostNodeView

app = Noun(name="node", help="Manage host nodes: list, show, drain, resume, remove, allocations.")

_NODE_COLUMNS: Final = (
    *("node", "state", "capacity", "used", "labels"),
    *("queues", "running", "slots", "version", "app_versions", "heartbeat"),
)
_ALLOCATION_COLUMNS: Final = ("allocation", "node", "job", "tenant", "task", "amounts", "since", "ended")
_PAGE: Final = 200


@app.command(name="list")
def list_nodes() -> None:
    """List the nodes and the hosts of all workers, with the ages of their last heartbeats."""
    show_rows(_NODE_COLUMNS, ask(lambda api: api.nodes.list()), _row)


@app.command
def show(node: str, /) -> None:
    """Show a node.

    Args:
        node: The node's name or id.
    """
    _show(ask(lambda api: api.nodes.get(node)))


@app.command
@name_caller
def drain(node: str, /) -> None:
    """Stop placing jobs on a node. Running jobs continue.

    Args:
        node: The node's name or id.
    """
    _show(ask(lambda api: api.nodes.drain(node)))


@app.command
@name_caller
def resume(node: str, /) -> None:
    """Resume placing jobs on a drained node.

    Args:
        node: The node's name or id.
    """
    _show(ask(lambda api: api.nodes.resume(node)))


@app.command
@name_caller
@ask_first("Remove node {node} and its allocations?")
def remove(node: str, /) -> None:
    """Remove a node and end its allocations. It returns if its workers still run.

    Args:
        node: The node's name or id.
    """
    _show(ask(lambda api: api.nodes.remove(node)))


@app.command
def allocations(*, node: str | None = None, job: str | None = None, ended: bool = False, limit: int = 50) -> None:
    """List allocations, newest first.

    Args:
        node: Only this node, by name.
        job: Only this job.
        ended: Include ended allocations.
        limit: Maximum number of allocations.
    """

    async def read(api: Api) -> "tuple[list[AllocationView], dict[str, str]]":
        found: list[AllocationView] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await api.resources.usage(
                node_id=node, job_id=job, is_open=not ended, limit=min(limit - len(found), _PAGE), cursor=cursor
            )
            found += page.items
            if (cursor := page.next) is None:
                break
        return found, {each.node_id: each.name for each in await api.nodes.list()}

    found, names = ask(read)
    show_rows(_ALLOCATION_COLUMNS, found, lambda each: _allocation_row(each, names))


def _show(node: "HostNodeView") -> None:
    show_record(
        node,
        lambda: {
            **_row(node),
            "id": node.node_id,
            "address": node.ip_address,
            "epoch": node.epoch,
            "workers": ", ".join(node.workers),
        },
    )


def _row(node: "HostNodeView") -> dict[str, Any]:
    return {
        "node": node.name,
        "state": node.status,
        "queues": ",".join(node.queues),
        "running": node.running,
        "slots": node.slots,
        "capacity": amounts_text(node.capacity),
        "used": amounts_text(node.used),
        "labels": ", ".join(f"{name}={value}" for name, value in node.labels.items()),
        "version": node.version,
        "app_versions": ",".join(node.app_versions),
        "heartbeat": _age(node.heartbeat_at),
    }


def _age(heartbeat: str | None) -> str:
    if heartbeat is None:
        return ""
    age = (datetime.now(UTC) - datetime.fromisoformat(heartbeat)).total_seconds()
    return f"{duration_text(max(0.0, age))} ago"


def _allocation_row(each: "AllocationView", names: dict[str, str]) -> dict[str, Any]:
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
