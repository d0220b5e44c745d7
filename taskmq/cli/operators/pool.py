"""`taskmq pool`."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.pools import PolicyBody, PoolBody
from taskmq.cli.actor import name_caller
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.output import ask_first, note, print_record
from taskmq.cli.server_link import Api, ask, show_record, show_rows, text_of_instant
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import TenantPool, path_of
from taskmq.model.resources import amounts_text, parse_amounts
from taskmq.model.topology import POLICIES
from taskmq.model.units import did_you_mean

if TYPE_CHECKING:
    from taskmq.api.pools import BacklogView, PoolView
    from taskmq.model.topology import Policy

app = Noun(name="pool", help="Manage the pools of tenants and the scheduling policies of queues.")

_COLUMNS: Final = ("pool", "parent", "weight", "min", "max")
_BACKLOG_COLUMNS: Final = ("tenant", "jobs", "oldest", "job", "task", "queue", "reason", "alternatives")


@app.command(name="list")
def list_pools() -> None:
    """List the pools in the store; tenants without a pool have weight 1."""
    found = ask(lambda api: api.pools.list())
    show_rows(_COLUMNS, found.items, _row)
    for each in found.policies:
        note(f"queue {each.queue}: {each.policy}{' strict' if each.strict else ''}")


@app.command
def show(pool: str, /) -> int:
    """Show a pool with its parents and children.

    Args:
        pool: The pool's name.
    """
    pools = {one.pool: one for one in ask(lambda api: api.pools.list()).items}
    if pool not in pools:
        note(f"no pool {pool!r}: {did_you_mean(pool, sorted(pools))}")
        return NOT_FOUND
    tree = {name: TenantPool(name=name, parent=one.parent) for name, one in pools.items()}
    above = [each.name for each in path_of(pool, tree)[:-1]]
    parts = sorted(name for name, one in pools.items() if one.parent == pool)
    if current_globals().output == "table":
        print_record({**_row(pools[pool]), "above": " > ".join(above), "parts": ", ".join(parts)})
    else:
        print_record({**msgspec.to_builtins(pools[pool]), "above": above, "parts": parts})
    return OK


@app.command
def waiting(*, limit: int = 20) -> None:
    """List tenants whose due stored jobs wait, the longest first; why the oldest job waits, and what would help.

    Args:
        limit: Maximum number of tenants.
    """
    show_rows(_BACKLOG_COLUMNS, ask(lambda api: api.pools.waiting(limit=limit)), _backlog_row)


@app.command(name="set")
@name_caller
def set_pool(
    pool: str,
    /,
    *,
    weight: float | None = None,
    parent: str | None = None,
    least: Annotated[str | None, Parameter(name="--min")] = None,
    most: Annotated[str | None, Parameter(name="--max")] = None,
) -> None:
    """Create the pool of a tenant, or change the given fields. Takes effect within two seconds.

    Args:
        pool: The tenant whose jobs belong to the pool; `*` stands for every tenant without a pool.
        weight: Share relative to its siblings, in queues with policy weighted.
        parent: The parent pool.
        least: Guaranteed jobs in flight, or guaranteed node resources: 4, or slots=4,gpu=1; 0: no minimum.
        most: Maximum in flight, in the same form; further jobs wait. 0: no cap.
    """

    async def change(api: Api) -> "PoolView":
        before = next((one for one in (await api.pools.list()).items if one.pool == pool), PoolBody())
        body = PoolBody(
            parent=before.parent if parent is None else parent or None,
            weight=before.weight if weight is None else weight,
            min=before.min if least is None else _parse_amounts(least, what="--min"),
            max=before.max if most is None else _parse_amounts(most, what="--max"),
        )
        return await api.pools.put(pool, body)

    made = ask(change)
    show_record(made, lambda: _row(made))


@app.command
@name_caller
@ask_first("Remove pool {pool}?")
def remove(pool: str, /) -> None:
    """Remove a pool; its tenant has weight 1 again.

    Args:
        pool: The pool's name.
    """
    ask(lambda api: api.pools.remove(pool))
    note(f"pool {pool} removed")


@app.command
@name_caller
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
    """Set the scheduling policy of a queue, overriding the app.

    Args:
        queue: The queue, by its name in the app.
        policy: fair, weighted, round_robin, priority, deadline or fifo; none: as the app says.
        strict: Always serve the highest class first; lower ones may starve.
        preempt_after: Seconds that a pool or class stays below its guarantee before preemptible runs are stopped for
            it.
        preempt_grace: Seconds that a preempted run has to end.
        preempt_most: How often in a row a job may be preempted; 0: never.
    """
    if policy == "none":
        ask(lambda api: api.pools.remove_policy(queue))
    else:
        body = PolicyBody(
            policy=_find_policy(policy),
            strict=strict,
            preempt_after=preempt_after,
            preempt_grace=preempt_grace,
            preempt_most=preempt_most,
        )
        ask(lambda api: api.pools.put_policy(queue, body))
    note(f"queue {queue} uses {'the policy of the app' if policy == 'none' else f'policy {policy}'}")


def _find_policy(name: str) -> "Policy":
    """Return the policy with this name.

    Raises:
        InvalidOption: no policy has this name.
    """
    known: dict[str, Policy] = {str(each): each for each in POLICIES}
    if name not in known:
        raise InvalidOption(f"policy {name!r}: one of {', '.join(POLICIES)}, or none")
    return known[name]


def _parse_amounts(text: str, *, what: str) -> dict[str, float]:
    """Parse the amounts of a pool: a number of slots, or an amount for each resource; 0 for none.

    Raises:
        InvalidOption: a name or an amount is invalid; the message names `what`.
    """
    found = parse_amounts(text if "=" in text else f"slots={text}", what=what)
    return {} if text.strip() == "0" else found


def _backlog_row(one: "BacklogView") -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "jobs": one.jobs,
        "oldest": text_of_instant(one.oldest),
        "job": one.first,
        "task": one.task,
        "queue": one.queue,
        "reason": "; ".join(one.reasons),
        "alternatives": "; ".join(one.alternatives),
    }


def _row(pool: "PoolView") -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "parent": pool.parent,
        "weight": pool.weight,
        "min": amounts_text(pool.min),
        "max": amounts_text(pool.max),
    }
