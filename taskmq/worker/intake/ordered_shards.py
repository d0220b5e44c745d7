"""Retries in ordered queues: the front job of a shard waits here, in the worker that consumes the shard.

A delayed copy would let the jobs behind it pass. So the delivery stays unsettled, without a slot, until it is due,
and then runs again; the shard is held meanwhile. Only this worker knows the attempt's number and due time: another
worker that takes over starts immediately with the attempt in the message.

A broker may take back a delivery that is unsettled for too long. After `_LONGEST` a delivery is returned: it is
redelivered to the same worker, first in its shard, and continues to wait.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.model.clock import Clock
from taskmq.model.outcome import Interrupted, Outcome, Parked, Retried, Snoozed
from taskmq.model.units import to_ms
from taskmq.worker.attempt import Attempt

LONGEST_HOLD: Final = 600.0
"""Maximum seconds for which a delivery is held beyond its runs."""

_LONGEST_MS: Final = round(LONGEST_HOLD * 1000)


class _ShardFront(msgspec.Struct):
    """The job at the front of a shard.

    Attributes:
        came: when its delivery arrived, ms.
        attempt: number of the next attempt.
        due: when the next run is due, ms.
        unknown: how often this worker did not know its task.
        outages: number of outages that interrupted the attempt.
        waiting: the task that wakes its delivery while that is held.
    """

    delivery: Delivery
    came: int
    attempt: int | None = None
    due: int = 0
    unknown: int = 0
    outages: int = 0
    waiting: "asyncio.Task[None] | None" = None


class OrderedShards:
    """The fronts of the shards that this worker consumes.

    Args:
        unknown_delay: seconds that a message with an unknown task waits the first time.
        unknown_attempts: number of such waits before it is parked.
        again: called with a held delivery that is due.
        passed: called with a delivery that was returned, or went to another worker.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        unknown_attempts: int,
        unknown_delay: float,
        again: Callable[[Delivery], None],
        passed: Callable[[Delivery], None],
    ) -> None:
        self._clock = clock
        self._unknown_attempts = unknown_attempts
        self._unknown_delay = unknown_delay
        self._again = again
        self._passed = passed
        self._fronts: dict[str, _ShardFront] = {}
        self._is_closed = False

    def holds(self, delivery: Delivery) -> bool:
        """Return whether a delivery is held until it is due."""
        front = self._fronts.get(delivery.queue)
        return front is not None and front.waiting is not None and front.delivery is delivery

    @property
    def is_holding(self) -> bool:
        """Whether any delivery is held."""
        return any(front.waiting is not None for front in self._fronts.values())

    def take(self, delivery: Delivery, read: Attempt | Parked) -> Attempt | Parked | None:
        """Return what to do with a shard's delivery now; None if it is held."""
        front = self._front(delivery)
        if front.due > self._clock.now_ms():
            self._hold(front)
            return None
        if isinstance(read, Parked):
            if read.delay is None or front.unknown >= self._unknown_attempts:
                return Parked(read.reason)
            delay = timedelta(seconds=self._unknown_delay * 2**front.unknown)
            front.unknown += 1
            self._wait(front, delay)
            return None
        if front.attempt is not None:
            read.envelope = replace(read.envelope, attempt=front.attempt)
            read.outages = front.outages
        return read

    def keep(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Hold the delivery of an attempt that another one follows; return whether it is held.

        After `close` it is returned instead: the next worker starts again.
        """
        front = self._front(attempt.delivery)
        match outcome:
            case Retried(delay):
                front.attempt, front.outages = attempt.envelope.attempt + 1, 0
            case Interrupted(delay=timedelta() as delay):
                front.attempt, front.outages = attempt.envelope.attempt, front.outages + 1
            # A job that neither started nor was turned back came too early: it waits at the broker, and is ordered by
            # its due time.
            case Snoozed(delay) if attempt.started is not None or attempt.is_turned_back:
                front.attempt = attempt.envelope.attempt
            case _:
                return False
        self._wait(front, delay)
        return True

    def forget(self, delivery: Delivery) -> None:
        """Forget the front of a shard whose job ended."""
        self._fronts.pop(delivery.queue, None)

    def close(self) -> list[Delivery]:
        """Hold no more deliveries; return those that were held."""
        self._is_closed = True
        held = [front for front in self._fronts.values() if front.waiting is not None]
        for front in held:
            assert front.waiting is not None
            front.waiting.cancel()
        self._fronts.clear()
        return [front.delivery for front in held]

    def _front(self, delivery: Delivery) -> _ShardFront:
        front = self._fronts.get(delivery.queue)
        if front is None or not _is_same(front.delivery, delivery):
            front = self._fronts[delivery.queue] = _ShardFront(delivery, self._clock.now_ms())
        elif front.delivery is not delivery:
            # The same message was redelivered.
            front.delivery, front.came = delivery, self._clock.now_ms()
        return front

    def _wait(self, front: _ShardFront, delay: timedelta) -> None:
        front.due = self._clock.now_ms() + to_ms(delay)
        self._hold(front)

    def _hold(self, front: _ShardFront) -> None:
        if self._is_closed:
            front.delivery.requeue()
            return
        queue = front.delivery.queue
        front.waiting = asyncio.create_task(self._wake(front), name=f"taskmq holds {queue}")

    async def _wake(self, front: _ShardFront) -> None:
        await self._clock.sleep_until(min(front.due, front.came + _LONGEST_MS))
        front.waiting = None
        delivery = front.delivery
        if is_revoked(delivery):
            self._passed(delivery)
        elif self._clock.now_ms() >= front.came + _LONGEST_MS:
            delivery.requeue()
            self._passed(delivery)
        else:
            self._again(delivery)


def _is_same(one: Delivery, other: Delivery) -> bool:
    if one is other:
        return True
    if one.message_id is None and other.message_id is None:
        return one.body == other.body
    return one.message_id == other.message_id
