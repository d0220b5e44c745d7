"""`taskmq pool`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import App, Parameter

from taskmq.api.pools import PolicyBody, PoolBody
from taskmq.cli.actor import audited
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.output import confirmed, note, print_record
from taskmq.cli.server_link import Api, ask, show_record, show_rows
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import TenantPool, path_of
from taskmq.model.resources import amounts_text, parse_amounts
from taskmq.model.topology import POLICIES
from taskmq.model.units import did_you_mean

if TYPE_CHECKING:
    from taskmq.api.pools import PoolView
    from taskmq.model.topology import Policy

__all__ = ["app"]

app = App(
    name="pool",
    help="Pools of tenants, and policies of queues: list, show, set, remove, policy.",
    result_action="return_value",
)

_COLUMNS: Final = ("pool", "parent", "weight", "min", "max")


@app.command(name="list")
def list_pools() -> None:
    """List the pools that the store knows; tenants without one have weight 1."""
    found = ask(lambda api: api.pools.list())
    show_rows(_COLUMNS, found.items, _row)
    for each in found.policies:
        note(f"queue {each.queue}: {each.policy}{' strict' if each.strict else ''}")


@app.command
def show(pool: str, /) -> int:
    """Show one pool, with the pools that it is a part of and those that are parts of it.

    Parameters
    ----------
    pool
        Its name.
    """
    pools = {one.pool: one for one in ask(lambda api: api.pools.list()).items}
    if pool not in pools:
        note(f"there is no pool {pool!r}: {did_you_mean(pool, sorted(pools))}")
        return NOT_FOUND
    tree = {name: TenantPool(name=name, parent=one.parent) for name, one in pools.items()}
    above = [each.name for each in path_of(pool, tree)[:-1]]
    parts = sorted(name for name, one in pools.items() if one.parent == pool)
    if current_globals().output == "table":
        print_record({**_row(pools[pool]), "above": " > ".join(above), "parts": ", ".join(parts)})
    else:
        print_record({**msgspec.to_builtins(pools[pool]), "above": above, "parts": parts})
    return OK


@app.command(name="set")
@audited
def set_pool(
    pool: str,
    /,
    *,
    weight: float | None = None,
    parent: str | None = None,
    least: Annotated[str | None, Parameter(name="--min")] = None,
    most: Annotated[str | None, Parameter(name="--max")] = None,
) -> None:
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

    async def change(api: Api) -> "PoolView":
        before = next((one for one in (await api.pools.list()).items if one.pool == pool), PoolBody())
        body = PoolBody(
            parent=before.parent if parent is None else parent or None,
            weight=before.weight if weight is None else weight,
            min=before.min if least is None else _amounts(least, what="--min"),
            max=before.max if most is None else _amounts(most, what="--max"),
        )
        return await api.pools.put(pool, body)

    made = ask(change)
    show_record(made, lambda: _row(made))


@app.command
@audited
@confirmed("Take the description of pool {pool} away?")
def remove(pool: str, /) -> None:
    """Take a pool's description away: its tenant has weight 1 again.

    Parameters
    ----------
    pool
        Its name.
    """
    ask(lambda api: api.pools.remove(pool))
    note(f"pool {pool} is not described any more")


@app.command
@audited
def policy(
    queue: str,
    policy: str,
    /,
    *,
    strict: Annotated[bool, Parameter(negative="")] = False,
    preempt_after: float = 5.0,
    preempt_grace: float = 30.0,
    preempt_most: int = 3,
) -> None:
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
    if policy == "none":
        ask(lambda api: api.pools.remove_policy(queue))
    else:
        body = PolicyBody(
            policy=_policy_named(policy),
            strict=strict,
            preempt_after=preempt_after,
            preempt_grace=preempt_grace,
            preempt_most=preempt_most,
        )
        ask(lambda api: api.pools.put_policy(queue, body))
    note(f"queue {queue} goes by {'what the app says' if policy == 'none' else policy}")


def _policy_named(name: str) -> "Policy":
    """Return the policy of that name.

    Raises:
        InvalidOption: there is no such policy.
    """
    known: dict[str, Policy] = {str(each): each for each in POLICIES}
    if name not in known:
        raise InvalidOption(f"policy {name!r}: one of {', '.join(POLICIES)}, or none")
    return known[name]


def _amounts(text: str, *, what: str) -> dict[str, float]:
    """Amounts of a pool as a command line has them: a number of slots, or each resource by name; 0 for none at all.

    Raises:
        InvalidOption: a name or an amount that cannot be; names `what`.
    """
    found = parse_amounts(text if "=" in text else f"slots={text}", what=what)
    return {} if text.strip() == "0" else found


def _row(pool: "PoolView") -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "parent": pool.parent,
        "weight": pool.weight,
        "min": amounts_text(pool.min),
        "max": amounts_text(pool.max),
    }
