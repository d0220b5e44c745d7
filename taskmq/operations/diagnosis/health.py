"""Whether the parts of an installation work: each asked for itself, all at once, within two seconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore, partition_key
from taskmq.errors import StoreMismatch, TaskMQError, UnsupportedFeature
from taskmq.model.topology import PARKING
from taskmq.operations.workers import list_workers

__all__ = ["LOSSES", "Part", "PartHealth", "PartStatus", "examine_parts", "find_schedulers"]

Part = Literal["store", "broker", "state", "schedulers", "workers"]
PartStatus = Literal["works", "partly", "down", "unknown", "absent"]

LOSSES: Final[dict[Part, str]] = {
    "store": "no job of the store is submitted, started, shown or changed, and no user can sign in",
    "broker": "no job reaches a worker, and `send` fails; jobs that are submitted to the store wait there",
    "state": "no results, progress, checkpoints, pauses, workflows and limits across workers; what needs them waits",
    "schedulers": "no job of the store goes to a worker, no schedule of the store fires, and no alert",
    "workers": "no task runs: jobs wait",
}
"""The things that do not work without each part."""

_ASKED_OVER: Final[dict[Part, Part]] = {"schedulers": "store", "workers": "broker"}
_PATIENCE: Final = 2.0
_WORKERS_ANSWER: Final = 0.5


class PartHealth(NamedTuple):
    """The condition of one part.

    Attributes:
        status: `works`; `partly`; `down`; `unknown` where it could not be asked; `absent` where the app has none.
        finding: a sentence without names, addresses and numbers, for everybody to read.
    """

    part: Part
    status: PartStatus
    finding: str


class _Schedulers(NamedTuple):
    """The shares of the store's queues that schedulers hold.

    Attributes:
        partitions: how many shares there are.
        free: how many of them no scheduler holds.
        owners: how many schedulers hold the others.
    """

    partitions: int
    free: int
    owners: int


async def find_schedulers(store: JobStore) -> _Schedulers:
    """Count the store's partitions that have no scheduler, and the schedulers of the others."""
    partitions = store.dispatching.partitions
    leases = [await store.dispatching.leases.find(partition_key(number)) for number in range(partitions)]
    owners = {lease.owner for lease in leases if lease is not None}
    return _Schedulers(partitions, sum(lease is None for lease in leases), len(owners))


async def examine_parts(app: TaskMQ) -> list[PartHealth]:
    """Ask store, broker, state, schedulers and workers at once; returns within two seconds, raises nothing of theirs.

    Schedulers are asked for at the store and workers over the broker, so both are unknown while that one is away.
    """
    looks: dict[Part, Callable[[TaskMQ], Awaitable[PartHealth]]] = {
        "store": _ask_store,
        "broker": _ask_broker,
        "state": _ask_state,
        "schedulers": _ask_schedulers,
        "workers": _ask_workers,
    }
    asked = await asyncio.gather(*(_in_time(part, look(app)) for part, look in looks.items()))
    found = {each.part: each for each in asked}
    for part, way in _ASKED_OVER.items():
        if found[part].status == "down" and found[way].status == "down":
            found[part] = PartHealth(part, "unknown", f"cannot be asked while the {way} does not answer")
    return list(found.values())


async def _in_time(part: Part, look: Awaitable[PartHealth]) -> PartHealth:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await look
    except TimeoutError:
        return PartHealth(part, "down", f"has not answered within {_PATIENCE:g} s")
    except StoreMismatch:
        return PartHealth(part, "down", "has the tables of another version: run `taskmq store upgrade`")
    except UnsupportedFeature:
        return PartHealth(part, "unknown", "cannot be asked over this broker")
    except TaskMQError:
        return PartHealth(part, "down", "does not answer")


async def _ask_store(app: TaskMQ) -> PartHealth:
    store = app.sessions.current().store
    if store is None:
        return PartHealth("store", "absent", "this app has none")
    await store.check()
    return PartHealth("store", "works", "answers")


async def _ask_broker(app: TaskMQ) -> PartHealth:
    broker = app.sessions.current().broker
    await broker.connect(timeout=_PATIENCE)
    # A connection that stands may be one to a broker that hangs.
    await broker.stats([PARKING])
    return PartHealth("broker", "works", "answers")


async def _ask_state(app: TaskMQ) -> PartHealth:
    state = app.sessions.current().state
    if state is None:
        return PartHealth("state", "absent", "this app has none")
    await state.results.get("health")
    return PartHealth("state", "works", "answers")


async def _ask_schedulers(app: TaskMQ) -> PartHealth:
    store = app.sessions.current().store
    if store is None:
        return PartHealth("schedulers", "absent", "this app has no job store to schedule for")
    found = await find_schedulers(store)
    if found.free == found.partitions:
        return PartHealth("schedulers", "down", "no scheduler runs: start `taskmq scheduler`")
    if found.free:
        return PartHealth("schedulers", "partly", "some shares of the store have no scheduler yet, or no more")
    return PartHealth("schedulers", "works", "hold all shares of the store")


async def _ask_workers(app: TaskMQ) -> PartHealth:
    answers = await list_workers(app, within=_WORKERS_ANSWER)
    served = {queue for answer in answers if answer.status.state == "running" for queue in answer.status.queues}
    if not any(answer.status.state != "draining" for answer in answers):
        return PartHealth("workers", "down", f"no worker has answered within {_WORKERS_ANSWER:g} s")
    if not served.issuperset(queue.name for queue in app.tasks.queues):
        return PartHealth("workers", "partly", "no worker that answers takes jobs of some of the app's queues")
    return PartHealth("workers", "works", "take jobs of all queues of the app")
