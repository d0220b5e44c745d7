"""`taskmq node`."""

from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from taskmq.cli.actor import audited, change_with_app
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import confirm, note, print_record, print_rows, when
from taskmq.cli.server_link import over_http

if TYPE_CHECKING:
    from taskmq.model.nodes import Allocation, HostNode

__all__ = ["ALLOCATION_COLUMNS", "NODE_COLUMNS", "app"]

app = App(
    name="node",
    help="Host nodes of the store: list, show, drain, resume, remove, allocations.",
    result_action="return_value",
)

NODE_COLUMNS: Final = ("node", "state", "capacity", "used", "labels", "heartbeat")
ALLOCATION_COLUMNS: Final = ("allocation", "node", "job", "tenant", "task", "amounts", "since", "ended")


@app.command(name="list")
@over_http("nodes:list_nodes")
def list_nodes() -> None:
    """List the nodes that workers with --node have reported, or that were registered over HTTP."""
    from taskmq.operations import nodes as operations

    print_rows(NODE_COLUMNS, [_row(node) for node in run_with_app(operations.list_nodes)])


@app.command
@over_http("nodes:show")
def show(node: str, /) -> int:
    """Show a node.

    Parameters
    ----------
    node
        Its name or id.
    """
    from taskmq.operations import nodes as operations

    return _told(node, run_with_app(lambda target: operations.find_node(target, node)))


@app.command
@audited
@over_http("nodes:drain")
def drain(node: str, /) -> int:
    """Have a node get no more jobs that are placed; what runs there goes on.

    Parameters
    ----------
    node
        Its name or id.
    """
    from taskmq.operations import nodes as operations

    return _told(node, change_with_app(lambda target: operations.drain_node(target, node), "node.drain", [node]))


@app.command
@audited
@over_http("nodes:resume")
def resume(node: str, /) -> int:
    """Have a node that was drained get jobs again.

    Parameters
    ----------
    node
        Its name or id.
    """
    from taskmq.operations import nodes as operations

    return _told(
        node, change_with_app(lambda target: operations.drain_node(target, node, drains=False), "node.resume", [node])
    )


@app.command
@audited
@over_http("nodes:remove")
def remove(node: str, /, *, yes: bool = False) -> int:
    """Forget a node and end its allocations; one whose workers run comes back.

    Parameters
    ----------
    node
        Its name or id.
    yes
        Do not ask.
    """
    from taskmq.operations import nodes as operations

    if not confirm(f"Forget node {node} and its allocations?", yes=yes):
        return OK
    return _told(node, change_with_app(lambda target: operations.remove_node(target, node), "node.remove", [node]))


@app.command
@over_http("nodes:allocations")
def allocations(*, node: str | None = None, job: str | None = None, ended: bool = False, limit: int = 50) -> None:
    """List what is allocated, the newest first.

    Parameters
    ----------
    node
        Of this node only, by its name.
    job
        Of this job only.
    ended
        Those that have ended, too.
    limit
        How many at most.
    """
    from taskmq.model.nodes import AllocationFilter
    from taskmq.operations import nodes as operations

    which = AllocationFilter(node=node, job=job, is_open=not ended)
    found = run_with_app(lambda target: operations.list_allocations(target, which, limit=limit))
    print_rows(ALLOCATION_COLUMNS, [_allocation(each) for each in found])


def _told(name: str, node: "HostNode | None") -> int:
    if node is None:
        note(f"there is no node {name!r}: taskmq node list")
        return NOT_FOUND
    print_record({**_row(node), "id": node.id, "address": node.told.address, "epoch": node.epoch})
    return OK


def _row(node: "HostNode") -> dict[str, Any]:
    from taskmq.model.resources import amounts_text

    return {
        "node": node.name,
        "state": node.state,
        "capacity": amounts_text(node.told.capacity),
        "used": amounts_text(node.used),
        "labels": ", ".join(f"{name}={value}" for name, value in node.told.labels.items()),
        "heartbeat": when(node.heartbeat),
    }


def _allocation(each: "Allocation") -> dict[str, Any]:
    from taskmq.model.resources import amounts_text

    return {
        "allocation": each.id,
        "node": each.node,
        "job": each.job,
        "tenant": each.tenant,
        "task": each.task,
        "amounts": amounts_text(each.amounts),
        "since": when(each.since),
        "ended": when(each.ended),
    }
