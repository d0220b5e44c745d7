"""`taskmq pool`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.actor import audited, change_with_app
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.output import confirmed, note, print_record, print_rows
from taskmq.cli.server_link import over_http
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import path_of
from taskmq.model.units import did_you_mean

if TYPE_CHECKING:
    from taskmq.model.jobs.pools import Amounts, TenantPool
    from taskmq.model.topology import Policy

__all__ = ["POOL_COLUMNS", "app", "policy_named", "pool_amounts", "pool_amounts_shown"]

app = App(
    name="pool",
    help="Pools of tenants, and policies of queues: list, show, set, remove, policy.",
    result_action="return_value",
)

POOL_COLUMNS: Final = ("pool", "parent", "weight", "min", "max")


@app.command(name="list")
@over_http("pools:list_pools")
def list_pools() -> None:
    """List the pools that the store knows; tenants without one have weight 1."""
    said = run_with_app(lambda target: target.pools.aread())
    print_rows(POOL_COLUMNS, [_row(pool) for _, pool in sorted(said.pools.items())])
    for queue, policy in sorted(said.queues.items()):
        note(f"queue {queue}: {policy.policy}{' strict' if policy.strict else ''}")


@app.command
@over_http("pools:show")
def show(pool: str, /) -> int:
    """Show one pool, with the pools that it is a part of and those that are parts of it.

    Parameters
    ----------
    pool
        Its name.
    """
    said = run_with_app(lambda target: target.pools.aread())
    if pool not in said.pools:
        note(f"there is no pool {pool!r}: {did_you_mean(pool, sorted(said.pools))}")
        return NOT_FOUND
    above = [each.name for each in path_of(pool, said.pools)[:-1]]
    parts = sorted(name for name, each in said.pools.items() if each.parent == pool)
    is_table = current_globals().output == "table"
    print_record(
        {
            **_row(said.pools[pool]),
            "above": " > ".join(above) if is_table else above,
            "parts": ", ".join(parts) if is_table else parts,
        }
    )
    return OK


@app.command(name="set")
@audited
@over_http("pools:set_pool")
def set_pool(
    pool: str,
    /,
    *,
    weight: float | None = None,
    parent: str | None = None,
    least: Annotated[str | None, Parameter(name="--min")] = None,
    most: Annotated[str | None, Parameter(name="--max")] = None,
) -> int:
    """Describe the pool of a tenant, or change what is given. Schedulers follow within a second or two.

    Parameters
    ----------
    pool
        The tenant whose jobs belong to it; `*`: every tenant without a pool.
    weight
        Its part beside its neighbours, in queues with policy weighted.
    parent
        The pool that it is a part of.
    least
        Jobs in flight that it gets first, or amounts of what they take of nodes: 4, or slots=4,gpu=1; 0: no minimum.
    most
        The most that it has in flight, in the same form; further jobs wait. 0: no cap.
    """
    changes: dict[str, Any] = {}
    if weight is not None:
        changes["weight"] = weight
    if parent is not None:
        changes["parent"] = parent or None
    if least is not None:
        changes["min"] = pool_amounts(least, what="--min")
    if most is not None:
        changes["max"] = pool_amounts(most, what="--max")
    made = change_with_app(lambda target: target.pools.aset(pool, **changes), "pool.change", [pool], after=changes)
    print_record(_row(made))
    return OK


@app.command
@audited
@confirmed("Take the description of pool {pool} away?")
@over_http("pools:remove")
def remove(pool: str, /) -> int:
    """Take a pool's description away: its tenant has weight 1 again.

    Parameters
    ----------
    pool
        Its name.
    """
    change_with_app(lambda target: target.pools.aremove(pool), "pool.remove", [pool])
    note(f"pool {pool} is not described any more")
    return OK


@app.command
@audited
@over_http("pools:policy")
def policy(
    queue: str,
    policy: str,
    /,
    *,
    strict: Annotated[bool, Parameter(negative="")] = False,
    preempt_after: float = 5.0,
    preempt_grace: float = 30.0,
    preempt_most: int = 3,
) -> int:
    """Have a queue go by a policy, whatever the app says.

    Parameters
    ----------
    queue
        The queue, as people name it.
    policy
        fair, weighted, round_robin, priority, deadline or fifo; none: what the app says.
    strict
        The highest class first, always: lower ones may starve.
    preempt_after
        Seconds for which a pool or class has less than it is guaranteed before runs that allow it give way to it.
    preempt_grace
        Seconds that a run has which is asked to.
    preempt_most
        So often in a row a job gives way; 0: never.
    """
    import msgspec

    from taskmq.model.jobs.pools import QueuePolicy

    chosen = policy_named(policy)
    wanted = None
    if chosen is not None:
        wanted = QueuePolicy(
            policy=chosen,
            strict=strict,
            preempt_after=preempt_after,
            preempt_grace=preempt_grace,
            preempt_most=preempt_most,
        )
    facts = None if wanted is None else msgspec.to_builtins(wanted)
    change_with_app(lambda target: target.pools.aset_policy(queue, wanted), "queue.policy", [queue], after=facts)
    note(f"queue {queue} goes by {'what the app says' if wanted is None else policy}")
    return OK


def policy_named(name: str) -> "Policy | None":
    """The policy of that name; None for "none".

    Raises:
        InvalidOption: there is no such policy.
    """
    from taskmq.model.topology import POLICIES

    known: dict[str, Policy] = {str(each): each for each in POLICIES}
    if name not in known and name != "none":
        raise InvalidOption(f"policy {name!r}: one of {', '.join(POLICIES)}, or none")
    return known.get(name)


def pool_amounts(text: str, *, what: str) -> dict[str, float]:
    """Amounts of a pool as a command line has them: a number of slots, or each resource by name; 0 for none at all.

    Raises:
        InvalidOption: a name or an amount that cannot be; names `what`.
    """
    from taskmq.model.resources import parse_amounts

    found = parse_amounts(text if "=" in text else f"slots={text}", what=what)
    return {} if text.strip() == "0" else found


def pool_amounts_shown(amounts: "Amounts") -> "Amounts | str":
    """Amounts of a pool for whom they are printed."""
    from taskmq.model.resources import amounts_text

    return amounts_text(amounts) if current_globals().output == "table" else amounts


def _row(pool: "TenantPool") -> dict[str, Any]:
    return {
        "pool": pool.name,
        "parent": pool.parent,
        "weight": pool.weight,
        "min": pool_amounts_shown(pool.min),
        "max": pool_amounts_shown(pool.max),
    }
