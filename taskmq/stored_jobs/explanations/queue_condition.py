"""The condition of a queue, for explanations: paused, without workers, or with its broker down."""

import asyncio
from datetime import datetime
from typing import Final, Literal

import msgspec

from taskmq.client.session import Session
from taskmq.errors import BrokerUnavailable, StateUnavailable, StoreUnavailable
from taskmq.model.commands import QueuePause
from taskmq.model.topology import jobs_queue, parcels_queue
from taskmq.model.units import to_datetime

_OBSTACLES: Final = frozenset(
    {"held", "dependency", "time", "paused", "scheduler", "broker", "workers", "placement", "limit", "cap", "quota"}
)
_TIMEOUT: Final = 2.0
"""Timeout for broker and state in seconds."""


class WaitReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why a job waits, or a fact about its wait.

    Attributes:
        kind: `held`, `dependency`, `time`, `paused`, `scheduler`, `broker`, `workers`, `placement`, `limit`, `cap`
            (an exhausted pool) and `quota` (an exhausted one) keep a job from its run; the others describe its wait.
        subject: the job, queue, pool or quota concerned; "" if there is none.
        since: since when; None if that is not known.
    """

    kind: Literal[
        "held",
        "dependency",
        "time",
        "paused",
        "scheduler",
        "broker",
        "workers",
        "placement",
        "limit",
        "cap",
        "quota",
        "pool",
        "turn",
        "message",
        "running",
        "interruption",
        "cancellation",
        "error",
        "unknown",
    ]
    text: str
    subject: str = ""
    since: datetime | None = None

    @property
    def is_obstacle(self) -> bool:
        """Whether it keeps the job from running."""
        return self.kind in _OBSTACLES


class QueueCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of broker and state about a queue.

    Attributes:
        obstacles: what keeps workers from its jobs.
        unknown: what could not be determined.
        ready: messages of stored jobs that wait in it; None if unknown.
        consumers: number of workers that consume it; None if unknown.
    """

    obstacles: list[WaitReason]
    unknown: list[WaitReason]
    ready: int | None = None
    consumers: int | None = None


async def examine_queue(session: Session, queue: str, *, reader: str | None) -> QueueCondition:
    """Examine whether the queue is paused (state) and how many workers consume it (broker).

    Args:
        queue: logical name of the queue, or the queue of a node.
        reader: the tenant that asks, which must not learn addresses or names of operators; None: an operator.
    """
    obstacles, unknown = await find_pause(session, queue, reader=reader)
    broker = session.broker
    where = f" at {broker.address}" if reader is None else ""
    try:
        async with asyncio.timeout(_TIMEOUT):
            await broker.connect(timeout=_TIMEOUT)
            # Workers start to consume the others with the first stored jobs.
            parts = await broker.stats([queue, jobs_queue(queue), parcels_queue(queue)])
    except (BrokerUnavailable, TimeoutError):
        text = f"the broker{where} does not answer: no job reaches a worker until it is back"
        obstacles.append(WaitReason(kind="broker", text=text))
        return QueueCondition(obstacles=obstacles, unknown=unknown)
    consumers = max((part.consumers for part in parts), default=0)
    if not consumers and not obstacles:
        text = f"no worker consumes queue {queue!r}{where}"
        obstacles.append(WaitReason(kind="workers", text=text, subject=queue))
    ready = sum(part.ready for part in parts if part.queue != queue)
    return QueueCondition(obstacles=obstacles, unknown=unknown, ready=ready, consumers=consumers)


async def find_pause(
    session: Session, queue: str, *, reader: str | None
) -> tuple[list[WaitReason], list[WaitReason]]:
    """Return the queue's pause, and whether it could not be determined."""
    unknown = f"cannot tell whether queue {queue!r} is paused"
    if (store := session.pauses) is None:
        text = f"{unknown}: this process has no state and no store"
        return [], [WaitReason(kind="unknown", text=text, subject=queue)]
    try:
        async with asyncio.timeout(_TIMEOUT):
            pause = (await store.queue_pauses()).get(queue)
    except (StateUnavailable, StoreUnavailable, TimeoutError):
        kind = "store" if store is session.store else "state"
        return [], [WaitReason(kind="unknown", text=f"{unknown}: the {kind} does not answer", subject=queue)]
    if pause is None:
        return [], []
    since = to_datetime(pause.since)
    text = _describe_pause(queue, pause, since, reader)
    return [WaitReason(kind="paused", text=text, subject=queue, since=since)], []


def _describe_pause(queue: str, pause: QueuePause, since: datetime, reader: str | None) -> str:
    by = f" by {pause.by}" if pause.by and reader is None else ""
    note = f" ({pause.note})" if pause.note else ""
    return f"queue {queue!r} has been paused since {since.isoformat(timespec='seconds')}{by}{note}"
