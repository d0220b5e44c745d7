"""The condition of a queue as a job of the store finds it: paused, without workers, its broker away."""

import asyncio
from datetime import datetime
from typing import Final

import msgspec

from taskmq.client.session import Session
from taskmq.errors import BrokerUnavailable, StateUnavailable, StoreUnavailable
from taskmq.model.commands import QueuePause
from taskmq.model.topology import jobs_queue
from taskmq.model.units import to_datetime

__all__ = ["QueueCondition", "examine_queue", "find_pause"]

_PATIENCE: Final = 2.0
"""Seconds for broker and state to answer."""


class QueueCondition(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of broker and state about a queue.

    Attributes:
        obstacles: sentences about what keeps workers from its jobs.
        unknown: sentences about what could not be asked.
        ready: messages of jobs of the store that wait in it; None: unknown.
        consumers: how many workers consume it; None: unknown.
    """

    obstacles: list[str]
    unknown: list[str]
    ready: int | None = None
    consumers: int | None = None


async def examine_queue(session: Session, queue: str, *, reader: str | None) -> QueueCondition:
    """Ask the state whether the queue is paused, and the broker who consumes it.

    Args:
        queue: as people name it, or that of a node.
        reader: the tenant that asks; it learns neither addresses nor names of operators. None: an operator.
    """
    obstacles, unknown = await find_pause(session, queue, reader=reader)
    broker = session.broker
    where = f" at {broker.address}" if reader is None else ""
    try:
        async with asyncio.timeout(_PATIENCE):
            await broker.connect(timeout=_PATIENCE)
            # A worker consumes the second one from the first job of the store on.
            parts = await broker.stats([queue, jobs_queue(queue)])
    except (BrokerUnavailable, TimeoutError):
        obstacles.append(f"the broker{where} does not answer: no job goes to a worker until it is back")
        return QueueCondition(obstacles=obstacles, unknown=unknown)
    consumers = max((part.consumers for part in parts), default=0)
    if not consumers and not obstacles:
        obstacles.append(f"no worker consumes queue {queue!r}{where}: start one that serves it")
    ready = sum(part.ready for part in parts if part.queue == jobs_queue(queue))
    return QueueCondition(obstacles=obstacles, unknown=unknown, ready=ready, consumers=consumers)


async def find_pause(session: Session, queue: str, *, reader: str | None) -> tuple[list[str], list[str]]:
    """Ask the state whether the queue is paused: a sentence about the pause, and one about what is unknown."""
    if (store := session.pauses) is None:
        return [], [f"whether queue {queue!r} is paused is unknown: this process has no state and no store"]
    try:
        async with asyncio.timeout(_PATIENCE):
            pause = (await store.queue_pauses()).get(queue)
    except (StateUnavailable, StoreUnavailable, TimeoutError):
        kind = "store" if store is session.store else "state"
        return [], [f"whether queue {queue!r} is paused is unknown: the {kind} does not answer"]
    return [] if pause is None else [_sentence(queue, pause, reader)], []


def _sentence(queue: str, pause: QueuePause, reader: str | None) -> str:
    since: datetime = to_datetime(pause.since)
    by = f" by {pause.by}" if pause.by and reader is None else ""
    note = f" ({pause.note})" if pause.note else ""
    remedy = f": `taskmq queue resume {queue}` ends that" if reader is None else ""
    return f"queue {queue!r} is paused since {since.isoformat(timespec='seconds')}{by}{note}{remedy}"
