"""`taskmq pool` and `taskmq quota` through a server."""

from typing import Any

import msgspec

from taskmq.api.pools import PolicyBody, PoolBody, PoolView, QuotaBody, QuotaView
from taskmq.cli.administration.quotas import QUOTA_COLUMNS
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.pool import POOL_COLUMNS, policy_named, pool_amounts, pool_amounts_shown
from taskmq.cli.output import note, print_record
from taskmq.cli.server_link import show_record, show_rows
from taskmq.errors import InvalidOption, RequestRefused
from taskmq.http import Client
from taskmq.model.jobs.pools import TenantPool, path_of
from taskmq.model.jobs.quotas import OnLimit
from taskmq.model.units import did_you_mean

__all__ = [
    "list_pools",
    "list_quotas",
    "policy",
    "remove",
    "remove_quota",
    "set_pool",
    "set_quota",
    "show",
]

_NOT_FOUND = 404
_QUOTA = QUOTA_COLUMNS[:-2]


def list_pools(client: Client) -> int:
    said = client.pools.list()
    show_rows(POOL_COLUMNS, said.items, _row)
    for each in said.policies:
        note(f"queue {each.queue}: {each.policy}{' strict' if each.strict else ''}")
    return OK


def show(client: Client, *, pool: str) -> int:
    pools = {one.pool: one for one in client.pools.list().items}
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


def set_pool(
    client: Client,
    *,
    pool: str,
    weight: float | None,
    parent: str | None,
    least: str | None,
    most: str | None,
) -> int:
    before = next((one for one in client.pools.list().items if one.pool == pool), None)
    said = (
        PoolBody()
        if before is None
        else PoolBody(parent=before.parent, weight=before.weight, min=before.min, max=before.max)
    )
    body = PoolBody(
        parent=said.parent if parent is None else parent or None,
        weight=said.weight if weight is None else weight,
        min=said.min if least is None else pool_amounts(least, what="--min"),
        max=said.max if most is None else pool_amounts(most, what="--max"),
    )
    made = client.pools.put(pool, body)
    show_record(made, lambda: _row(made))
    return OK


def remove(client: Client, *, pool: str) -> int:
    pools = [one.pool for one in client.pools.list().items]
    if pool not in pools:
        raise InvalidOption(f"there is no pool {pool!r}: {did_you_mean(pool, sorted(pools))}")
    client.pools.remove(pool)
    note(f"pool {pool} is not described any more")
    return OK


def policy(
    client: Client,
    *,
    queue: str,
    policy: str,
    strict: bool,
    preempt_after: float,
    preempt_grace: float,
    preempt_most: int,
) -> int:
    if (wanted := policy_named(policy)) is None:
        client.pools.remove_policy(queue)
    else:
        body = PolicyBody(
            policy=wanted,
            strict=strict,
            preempt_after=preempt_after,
            preempt_grace=preempt_grace,
            preempt_most=preempt_most,
        )
        client.pools.put_policy(queue, body)
    note(f"queue {queue} goes by {'what the app says' if wanted is None else wanted}")
    return OK


def list_quotas(client: Client) -> int:
    show_rows(QUOTA_COLUMNS, client.quotas.list(), lambda each: {name: getattr(each, name) for name in QUOTA_COLUMNS})
    return OK


def set_quota(
    client: Client,
    *,
    tenant: str,
    user: str | None,
    queued: int | None,
    a_day: int | None,
    size: int | None,
    rate: float | None,
    burst: int,
    running: int | None,
    on_limit: OnLimit,
) -> int:
    body = QuotaBody(
        queued=queued, a_day=a_day, bytes=size, rate=rate, burst=burst, running=running, on_limit=on_limit
    )
    made: QuotaView = client.quotas.put(tenant, body, user=user)
    show_record(made, lambda: {name: getattr(made, name) for name in _QUOTA})
    return OK


def remove_quota(client: Client, *, tenant: str, user: str | None) -> int:
    try:
        client.quotas.remove(tenant, user=user)
    except RequestRefused as error:
        if error.status != _NOT_FOUND:
            raise
        # As without a server.
        raise InvalidOption(str(error)) from error
    note(f"{tenant} has no quota {'' if user is None else f'for user {user} '}any more")
    return OK


def _row(pool: PoolView) -> dict[str, Any]:
    return {
        "pool": pool.pool,
        "parent": pool.parent,
        "weight": pool.weight,
        "min": pool_amounts_shown(pool.min),
        "max": pool_amounts_shown(pool.max),
    }
