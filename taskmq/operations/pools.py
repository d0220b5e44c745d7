"""Policies and pools in the store: read, and changed by compare-and-set."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore
from taskmq.errors import InvalidOption
from taskmq.model.jobs.pools import QueuePolicy, Sharing, TenantPool
from taskmq.model.topology import check_queue_name
from taskmq.model.units import did_you_mean

__all__ = ["read_sharing_of", "remove_pool", "set_policy", "set_pool"]


async def read_sharing_of(app: TaskMQ) -> Sharing:
    """What operators have said about turns.

    Raises:
        UnsupportedFeature: the app has no store.
        StoreUnavailable: it could not be reached.
    """
    return await _store(app).sharing()


async def set_pool(app: TaskMQ, name: str, **changes: Any) -> TenantPool:
    """Describe a pool, or change what is given of one that is there; as it is now.

    Raises:
        InvalidOption: a value that cannot be.
    """

    def change(before: Sharing) -> Sharing:
        pool = replace(before.pools.get(name) or TenantPool(name=name), **changes)
        return replace(before, pools={**before.pools, name: pool})

    return (await _change(_store(app), change)).pools[name]


async def remove_pool(app: TaskMQ, name: str) -> None:
    """Take a pool's description away.

    Raises:
        InvalidOption: there is none, or another pool is a part of it.
    """

    def change(before: Sharing) -> Sharing:
        if name not in before.pools:
            raise InvalidOption(f"there is no pool {name!r}: {did_you_mean(name, sorted(before.pools))}")
        return replace(before, pools={other: pool for other, pool in before.pools.items() if other != name})

    await _change(_store(app), change)


async def set_policy(app: TaskMQ, queue: str, policy: QueuePolicy | None) -> None:
    """Have a queue go by a policy, whatever apps say; None: by what they say.

    Raises:
        InvalidOption: a queue cannot be called that.
    """
    check_queue_name(queue)

    def change(before: Sharing) -> Sharing:
        queues = {name: each for name, each in before.queues.items() if name != queue}
        return replace(before, queues=queues if policy is None else {**queues, queue: policy})

    await _change(_store(app), change)


async def _change(store: JobStore, change: Callable[[Sharing], Sharing]) -> Sharing:
    while True:
        before = await store.sharing()
        after = replace(change(before), version=before.version + 1)
        if await store.share(after):
            return after


def _store(app: TaskMQ) -> JobStore:
    return app.sessions.store()
