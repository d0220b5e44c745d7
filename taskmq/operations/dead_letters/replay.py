"""Replay of dead letters: publish a copy, wait for its confirm, and only then acknowledge the letter.

A crash between the two can repeat a job, but never lose one.

A job has several letters if its worker died after a dead letter was confirmed and before it acknowledged the job.
One of them is replayed, and the others are dropped once that one is confirmed.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from taskmq.contracts.broker import Broker, Delivery, Outgoing
from taskmq.contracts.republish import copied_headers, keeps_replays
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import (
    EncodeError,
    InvalidOption,
    MalformedMessage,
    PartlyReplayed,
    PublishRejected,
    SendError,
    TooLarge,
    Unroutable,
)
from taskmq.model import headers as header
from taskmq.model.clock import Clock
from taskmq.model.envelope import amend
from taskmq.model.topology import WorkQueue, check_queue_name, class_queue, is_work_queue, logical_queue
from taskmq.model.units import Duration, parse_seconds
from taskmq.operations.dead_letters.letter import DeadLetter, JobsOfLetters
from taskmq.operations.dead_letters.selection import Choose
from taskmq.operations.dead_letters.walk import Progress, Walk, walk

_WINDOW: Final = 500
_HIGH, _LOW = 9, 0
_NATIVE: Final = range(10)
# The broker refused only this message; it may accept the next.
_OF_ONE_LETTER: Final = (Unroutable, TooLarge, EncodeError, PublishRejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Options of a replay.

    Args:
        to: logical name of the target queue; the priority class is kept. None: the queue each letter came from.
        keep_attempts: keep the number of the last attempt; otherwise start at the first.
        max_replays: letters replayed this often before stay in the queue; None: no limit.
        rate: most letters per second.
        duplicates: replay all letters of a job; otherwise replay one and drop the others.
        queues: queues as they are defined now. If one of them no longer has a letter's lane or class, no worker
            would consume from it; the letter goes to the queue itself.
    """

    to: str | None = None
    keep_attempts: bool = False
    max_replays: int | None = 3
    rate: float | None = None
    duplicates: bool = False
    queues: Collection[WorkQueue] = ()

    def __post_init__(self) -> None:
        if self.to is not None:
            check_queue_name(self.to)
        if self.rate is not None and self.rate <= 0:
            raise InvalidOption(f"rate={self.rate!r}: give more than 0 letters per second")

    def target(self, letter: DeadLetter) -> str:
        """Return the physical queue that `letter` would go to; "" if it is unknown."""
        target = letter.queue if self.to is None else self._in_same_class(letter.queue, self.to)
        name = logical_queue(target)
        for queue in self.queues:
            if queue.name == name:
                physical = _physical_queues(queue)
                return target if target in physical or name not in physical else name
        return target

    @staticmethod
    def _in_same_class(origin: str, name: str) -> str:
        """Return the physical queue of `name` in the priority class of `origin`."""
        for priority in (_HIGH, _LOW):
            if origin == class_queue(logical_queue(origin), priority):
                return class_queue(name, priority)
        return name

    def refusal(self, letter: DeadLetter) -> Literal["replayed too often", "no destination"] | None:
        """Return why `letter` stays in the queue, or None."""
        if self.max_replays is not None and letter.replayed >= self.max_replays:
            return "replayed too often"
        # The origin comes from the letter's own headers, which anyone who may publish jobs can forge.
        return None if is_work_queue(self.target(letter)) else "no destination"

    def copy(self, letter: DeadLetter) -> Outgoing:
        """Build the message to publish: the original job, without the headers about its death."""
        changes = {"eta": None} if self.keep_attempts else {"attempt": 1, "eta": None}
        try:
            body = amend(letter.body, letter.content_type, changes)
        except MalformedMessage:
            body = letter.body
        return Outgoing(
            queue=self.target(letter),
            body=body,
            content_type=letter.content_type or "",
            job_id=letter.job_id,
            task=letter.task,
            enqueued=letter.enqueued,
            root=letter.root,
            headers={
                **copied_headers(letter.headers, keeps=keeps_replays),
                header.REPLAYED: letter.replayed + 1,
            },
            # A different queue may have another order, or none.
            priority=letter.priority if self.to is None and letter.priority in _NATIVE else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Result of a replay.

    Attributes:
        replayed: letters that were published again.
        dropped: further letters of the same jobs, which were removed without being published.
        too_often: letters that stayed, because of `Replay.max_replays`.
        no_destination: letters that stayed, because their origin is unknown or no job queue: give `Replay.to`.
    """

    replayed: int = 0
    dropped: int = 0
    too_often: int = 0
    no_destination: int = 0


async def replay(
    broker: Broker,
    queue: str,
    *,
    timeout: Duration,
    plan: Replay | None = None,
    choose: Choose | None = None,
    limit: int | None = None,
    depth: int | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Replayed:
    """Publish the jobs of the chosen dead letters of `queue` again, in order. Letters that stay keep their order.

    If a job has several letters within `choose` and `depth`, one of them is replayed unless the plan says otherwise.
    Letters of the same job beyond `limit` are left.

    Only letters present at the start are read, so a job that dies again at once is not replayed forever. A letter
    that the broker refuses stays, and the replay continues. If the broker is lost or blocked, the replay stops.

    Args:
        broker: the broker that has the queue.
        queue: logical name of the queue; or `taskmq.parking`, `taskmq.unroutable`.
        plan: options of the replay.
        choose: predicate that selects letters; default: all.
        limit: number of published letters after which to stop.
        depth: read at most this many letters, the oldest.
        progress: called with the progress of the walk.
        clock: clock for `Replay.rate`.

    Raises:
        InvalidOption: the queue's name is invalid.
        QueueMissing: there is no such queue.
        PartlyReplayed: some copies were not confirmed; their letters are still in the queue.
        BrokerUnavailable: the connection was lost while letters were read; they are still in the queue.
    """
    plan = plan or Replay()
    async with walk(broker, queue, depth=depth, expected=None if choose else limit, progress=progress) as letters:
        seconds = parse_seconds(timeout, what="timeout")
        sender = _Sender(broker, plan, timeout=seconds, clock=clock or SystemClock())
        await sender.run(letters, choose, limit)
    if sender.failure is not None:
        raise PartlyReplayed(sender.failure, failed=sender.failed, replayed=sender.done.replayed) from sender.failure
    return sender.done


@lru_cache
def _physical_queues(queue: WorkQueue) -> frozenset[str]:
    return frozenset(queue.physical)


class _Sender:
    def __init__(self, broker: Broker, plan: Replay, *, timeout: float, clock: Clock) -> None:
        self.done = Replayed()
        self.failure: SendError | None = None
        self.failed = 0
        self._broker = broker
        self._plan = plan
        self._timeout = timeout
        self._clock = clock
        self._began = clock.now_ms()
        self._sent = 0
        self._jobs = JobsOfLetters()
        self._confirmed: set[tuple[str, str]] = set()
        self._is_over = False

    async def run(self, letters: Walk, choose: Choose | None, limit: int | None) -> None:
        # With a rate the windows are small, to avoid bursts.
        window = _WINDOW if self._plan.rate is None else min(_WINDOW, max(1, int(self._plan.rate / 4)))
        while not self._is_over:
            left = None if limit is None else limit - self._sent
            if left is not None and left <= 0:
                return
            # If every letter is chosen, do not read more than needed.
            piece = await letters.next(window if left is None or choose is not None else min(window, left))
            if not piece:
                return
            chosen = [(delivery, letter) for delivery, letter in piece if choose is None or choose(letter)]
            await self._send_once([entry for entry in chosen if self._may_replay(entry[1])], left)

    async def _send_once(self, letters: list[tuple[Delivery, DeadLetter]], left: int | None) -> None:
        firsts: list[tuple[Delivery, DeadLetter]] = []
        others: list[tuple[Delivery, DeadLetter]] = []
        for entry in letters:
            if self._plan.duplicates or self._jobs.is_first(entry[1]):
                if left is not None and len(firsts) == left:
                    break
                firsts.append(entry)
            else:
                others.append(entry)
        await self._send(firsts)
        for delivery, letter in others:
            if letter.job in self._confirmed:
                delivery.ack()
                self.done = replace(self.done, dropped=self.done.dropped + 1)

    def _may_replay(self, letter: DeadLetter) -> bool:
        match self._plan.refusal(letter):
            case "replayed too often":
                self.done = replace(self.done, too_often=self.done.too_often + 1)
                return False
            case "no destination":
                self.done = replace(self.done, no_destination=self.done.no_destination + 1)
                return False
            case None:
                return True

    async def _send(self, letters: list[tuple[Delivery, DeadLetter]]) -> None:
        if self._plan.rate is not None and letters:
            await self._clock.sleep_until(self._began + int(self._sent * 1000 / self._plan.rate))
        # Publish the whole window before awaiting the first confirm; each letter is acknowledged after its own.
        sent = [(delivery, letter, self._publish(letter)) for delivery, letter in letters]
        for delivery, letter, confirmed in sent:
            try:
                await confirmed
            except SendError as error:
                # Keep awaiting: the others are already published, and would otherwise be sent twice.
                self.failure = self.failure or error
                self.failed += 1
                self._is_over = self._is_over or not isinstance(error, _OF_ONE_LETTER)
            else:
                delivery.ack()
                self._confirmed.add(letter.job)
                self.done = replace(self.done, replayed=self.done.replayed + 1)
        self._sent += len(sent)

    def _publish(self, letter: DeadLetter) -> "asyncio.Future[None]":
        return self._broker.publish(self._plan.copy(letter), timeout=self._timeout)
