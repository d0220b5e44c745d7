"""Health check of an installation: asks all parts at once and answers within two seconds."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, Literal, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore, partition_key
from taskmq.errors import StoreMismatch, TaskMQError, UnsupportedFeature
from taskmq.model.topology import PARKING
from taskmq.operations.workers import list_workers

Part = Literal["store", "broker", "state", "schedulers", "workers"]
PartStatus = Literal["works", "partly", "down", "unknown", "absent"]

LOSSES: Final[dict[Part, str]] = {
    "store": "stored jobs cannot be submitted, started, shown or changed, and no user can sign in",
    "broker": "no job reaches a worker, and `send` fails; submitted jobs wait in the store",
    "state": "no results, progress, checkpoints, pauses, workflows or shared limits; jobs that need them wait",
    "schedulers": "no stored job reaches a worker, and no stored schedule or alert fires",
    "workers": "no task runs; jobs wait",
}
"""Consequences of losing each part."""

_CHECKED_THROUGH: Final[dict[Part, Part]] = {"schedulers": "store", "workers": "broker"}
_TIMEOUT: Final = 2.0
_WORKERS_ANSWER: Final = 0.5


class PartHealth(NamedTuple):
    """The condition of one part.

    Attributes:
        status: `works`, `partly`, `down`, `unknown` if it could not be asked, `absent` if the app has none.
        finding: a sentence without names, addresses and numbers, safe to show to anyone.
        seconds: how long the check took; None if it failed.
    """

    part: Part
    status: PartStatus
    finding: str
    seconds: float | None = None


class _Schedulers(NamedTuple):
    """Schedulers and the partitions of the store that they hold.

    Attributes:
        partitions: number of partitions.
        free: partitions that no scheduler holds.
        owners: schedulers that hold the others.
    """

    partitions: int
    free: int
    owners: int


async def find_schedulers(store: JobStore) -> _Schedulers:
    """Count the store's partitions without a scheduler, and the schedulers of the others."""
    partitions = store.dispatching.partitions
    leases = [await store.dispatching.leases.find(partition_key(number)) for number in range(partitions)]
    owners = {lease.owner for lease in leases if lease is not None}
    return _Schedulers(partitions, sum(lease is None for lease in leases), len(owners))


async def measure_schedule_delay(store: JobStore, *, now: int) -> float:
    """Return the seconds for which the latest schedule has been due; 0.0 if none is. `now` is in ms."""
    partitions = range(store.dispatching.partitions)
    due = [await store.schedules.due(number, until=now, limit=1) for number in partitions]
    return max(((now - first.due) / 1000 for found in due for first in found), default=0.0)


async def examine_parts(app: TaskMQ) -> list[PartHealth]:
    """Check store, broker, state, schedulers and workers concurrently.

    Returns within two seconds; a part that fails is reported, not raised. Schedulers are found through the store and
    workers through the broker, so their health is unknown while that one is down.
    """
    checks: dict[Part, Callable[[TaskMQ], Awaitable[PartHealth]]] = {
        "store": _check_store,
        "broker": _check_broker,
        "state": _check_state,
        "schedulers": _check_schedulers,
        "workers": _check_workers,
    }
    reports = await asyncio.gather(*(_check_in_time(part, check(app)) for part, check in checks.items()))
    found = {each.part: each for each in reports}
    for part, through in _CHECKED_THROUGH.items():
        if found[part].status == "down" and found[through].status == "down":
            found[part] = PartHealth(part, "unknown", f"cannot be checked while the {through} does not answer")
    return list(found.values())


async def _check_in_time(part: Part, check: Awaitable[PartHealth]) -> PartHealth:
    began = monotonic()
    try:
        async with asyncio.timeout(_TIMEOUT):
            return (await check)._replace(seconds=monotonic() - began)
    except TimeoutError:
        return PartHealth(part, "down", f"did not answer within {_TIMEOUT:g} s")
    except StoreMismatch:
        return PartHealth(part, "down", "has the tables of another version: run `taskmq store upgrade`")
    except UnsupportedFeature:
        return PartHealth(part, "unknown", "cannot be checked through this broker")
    except TaskMQError:
        return PartHealth(part, "down", "does not answer")


async def _check_store(app: TaskMQ) -> PartHealth:
    store = app.sessions.current().store
    if store is None:
        return PartHealth("store", "absent", "this app has none")
    await store.check()
    return PartHealth("store", "works", "answers")


async def _check_broker(app: TaskMQ) -> PartHealth:
    broker = app.sessions.current().broker
    await broker.connect(timeout=_TIMEOUT)
    # The connection may be open although the broker hangs.
    await broker.stats([PARKING])
    return PartHealth("broker", "works", "answers")


async def _check_state(app: TaskMQ) -> PartHealth:
    state = app.sessions.current().state
    if state is None:
        return PartHealth("state", "absent", "this app has none")
    await state.results.get("health")
    return PartHealth("state", "works", "answers")


async def _check_schedulers(app: TaskMQ) -> PartHealth:
    store = app.sessions.current().store
    if store is None:
        return PartHealth("schedulers", "absent", "this app has no job store to schedule for")
    found = await find_schedulers(store)
    if found.free == found.partitions:
        return PartHealth("schedulers", "down", "no scheduler runs: start `taskmq scheduler`")
    if found.free:
        return PartHealth("schedulers", "partly", "some partitions of the store have no scheduler")
    return PartHealth("schedulers", "works", "hold all partitions of the store")


async def _check_workers(app: TaskMQ) -> PartHealth:
    answers = await list_workers(app, within=_WORKERS_ANSWER)
    served = {queue for answer in answers if answer.status.state == "running" for queue in answer.status.queues}
    if not any(answer.status.state != "draining" for answer in answers):
        return PartHealth("workers", "down", f"no worker answered within {_WORKERS_ANSWER:g} s")
    if not served.issuperset(queue.name for queue in app.tasks.queues):
        return PartHealth("workers", "partly", "some of the app's queues are served by no worker that answers")
    return PartHealth("workers", "works", "serve all queues of the app")
