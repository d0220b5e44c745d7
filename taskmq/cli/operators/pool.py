"""`taskmq pool`."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from taskmq.cli.exits import OK
from taskmq.cli.globals import run_with_app
from taskmq.cli.output import note, print_record, print_rows
from taskmq.errors import InvalidOption

if TYPE_CHECKING:
    from taskmq.model.jobs.pools import TenantPool

__all__ = ["app"]

app = App(
    name="pool", help="Pools of tenants, and policies of queues: list, set, remove.", result_action="return_value"
)

_COLUMNS = ("pool", "parent", "weight", "min", "max")


@app.command(name="list")
def list_pools() -> None:
    """List the pools that the store knows; tenants without one have weight 1."""
    from taskmq.operations import pools as operations

    said = run_with_app(operations.read_sharing_of)
    print_rows(_COLUMNS, [_row(pool) for _, pool in sorted(said.pools.items())])
    for queue, policy in sorted(said.queues.items()):
        note(f"queue {queue}: {policy.policy}{' strict' if policy.strict else ''}")


@app.command(name="set")
def set_pool(
    pool: str,
    /,
    *,
    weight: float | None = None,
    parent: str | None = None,
    least: Annotated[float | None, Parameter(name="--min")] = None,
    most: Annotated[float | None, Parameter(name="--max")] = None,
) -> int:
    """Describe the pool of a tenant, or change what is given. Schedulers follow within a second or two.

    Parameters
    ----------
    pool
        The tenant whose jobs belong to it; `*`: every tenant that has none of its own.
    weight
        Its part beside its neighbours, in queues with policy weighted.
    parent
        The pool that it is a part of.
    least
        Jobs in flight that it gets first; 0: no minimum.
    most
        Jobs in flight above which its jobs wait; 0: no cap.
    """
    from taskmq.operations import pools as operations

    changes: dict[str, Any] = {}
    if weight is not None:
        changes["weight"] = weight
    if parent is not None:
        changes["parent"] = parent or None
    if least is not None:
        changes["min"] = {"slots": least} if least else {}
    if most is not None:
        changes["max"] = {"slots": most} if most else {}
    print_record(_row(run_with_app(lambda target: operations.set_pool(target, pool, **changes))))
    return OK


@app.command
def remove(pool: str, /) -> int:
    """Take a pool's description away: its tenant has weight 1 again.

    Parameters
    ----------
    pool
        Its name.
    """
    from taskmq.operations import pools as operations

    run_with_app(lambda target: operations.remove_pool(target, pool))
    note(f"pool {pool} is not described any more")
    return OK


@app.command
def policy(queue: str, policy: str, /, *, strict: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Have a queue go by a policy, whatever the app says.

    Parameters
    ----------
    queue
        The queue, as people name it.
    policy
        fair, weighted, round_robin, priority, deadline or fifo; none: what the app says.
    strict
        The highest class first, always: lower ones may starve.
    """
    from taskmq.model.jobs.pools import QueuePolicy
    from taskmq.model.topology import POLICIES
    from taskmq.operations import pools as operations

    chosen = next((name for name in POLICIES if name == policy), None)
    if chosen is None and policy != "none":
        raise InvalidOption(f"policy {policy!r}: one of {', '.join(POLICIES)}, or none")
    wanted = None if chosen is None else QueuePolicy(policy=chosen, strict=strict)
    run_with_app(lambda target: operations.set_policy(target, queue, wanted))
    note(f"queue {queue} goes by {'what the app says' if wanted is None else policy}")
    return OK


def _row(pool: "TenantPool") -> dict[str, Any]:
    return {
        "pool": pool.name,
        "parent": pool.parent,
        "weight": pool.weight,
        "min": pool.min.get("slots"),
        "max": pool.max.get("slots"),
    }
