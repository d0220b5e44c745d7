"""Sending dead letters again: publish the copy, wait for its confirm, and only then take the letter off.

A crash between the two repeats a job, and loses none.

A job can have several letters, where its worker died between the confirm of its dead letter and the acknowledgement.
One of them is sent, and the others are dropped once that is confirmed.
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

__all__ = ["Replay", "Replayed", "replay"]

_WINDOW: Final = 500
_HIGH, _LOW = 9, 0
_NATIVE: Final = range(10)
# The broker has judged this one message; what comes after may fare better.
_OF_ONE_LETTER: Final = (Unroutable, TooLarge, EncodeError, PublishRejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How letters are sent again.

    Args:
        to: the queue, as people name it; the priority class stays. None: where each came from.
        keep_attempts: go on with the attempt that was the last; else from the first on.
        max_replays: letters that were replayed so often before stay; None: none does.
        rate: letters a second at most.
        duplicates: send all letters of a job; else one, and drop the others.
        queues: as they are described today. What would go to a lane or class that one of them has no more, where
            no worker would take it, goes to the queue itself.
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
            raise InvalidOption(f"rate={self.rate!r}: more than 0 letters a second")

    def target(self, letter: DeadLetter) -> str:
        """The physical queue that `letter` would go to; "" when it is unknown."""
        place = letter.queue if self.to is None else self._like(letter.queue, self.to)
        name = logical_queue(place)
        for queue in self.queues:
            if queue.name == name:
                places = _places(queue)
                return place if place in places or name not in places else name
        return place

    @staticmethod
    def _like(place: str, name: str) -> str:
        """The queue of that name, in the priority class of `place`."""
        for priority in (_HIGH, _LOW):
            if place == class_queue(logical_queue(place), priority):
                return class_queue(name, priority)
        return name

    def refusal(self, letter: DeadLetter) -> Literal["replayed too often", "no destination"] | None:
        """Why `letter` stays where it is, or None."""
        if self.max_replays is not None and letter.replayed >= self.max_replays:
            return "replayed too often"
        # A letter names its origin itself: the right to send jobs is enough to write any.
        return None if is_work_queue(self.target(letter)) else "no destination"

    def copy(self, letter: DeadLetter) -> Outgoing:
        """What `letter` is sent as: the job as it was, without what was written about its death."""
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
            # Another queue may have another order, or none.
            priority=letter.priority if self.to is None and letter.priority in _NATIVE else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay did.

    Attributes:
        replayed: letters that were sent again.
        dropped: further letters of the same jobs, which were taken off and not sent.
        too_often: letters that stayed, because of `Replay.max_replays`.
        no_destination: letters that stayed, because their origin is unknown or no queue of jobs: say `Replay.to`.
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
    """Send the jobs of the dead letters of `queue` that are chosen again, in their order; what stays keeps its order.

    Of several letters of one job, those that `choose` and `depth` let through, one is sent unless the plan says
    otherwise. With a `limit` the others may be behind it, and are left.

    Looks at as many letters as there are when it starts, so that jobs which die again at once are not replayed
    for ever. A letter that the broker does not take stays, and the others go on; when the broker is gone or
    blocked, no further letters are begun.

    Args:
        broker: where the queue is.
        queue: as people name it; or `taskmq.parking`, `taskmq.unroutable`.
        timeout: for each publish.
        plan: how.
        choose: which; all when left out.
        limit: stop after so many that were sent.
        depth: look at no more than so many, the oldest.
        progress: called with how far it is.
        clock: for `Replay.rate`.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
        PartlyReplayed: some copies were not confirmed: their letters are where they were.
        BrokerUnavailable: the broker was lost while letters were taken; those taken are where they were.
    """
    plan = plan or Replay()
    async with walk(broker, queue, depth=depth, progress=progress) as letters:
        seconds = parse_seconds(timeout, what="timeout")
        sender = _Sender(broker, plan, timeout=seconds, clock=clock or SystemClock())
        await sender.run(letters, choose, limit)
    if sender.failure is not None:
        raise PartlyReplayed(sender.failure, failed=sender.failed, replayed=sender.done.replayed) from sender.failure
    return sender.done


@lru_cache
def _places(queue: WorkQueue) -> frozenset[str]:
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
        # In small windows where there is a rate, so that they do not go in bursts.
        window = _WINDOW if self._plan.rate is None else min(_WINDOW, max(1, int(self._plan.rate / 4)))
        while not self._is_over:
            left = None if limit is None else limit - self._sent
            if left is not None and left <= 0:
                return
            # Without a choice most letters count: none is taken in vain.
            piece = await letters.next(window if left is None or choose is not None else min(window, left))
            if not piece:
                return
            chosen = [(delivery, letter) for delivery, letter in piece if choose is None or choose(letter)]
            await self._send_once([entry for entry in chosen if self._may_go(entry[1])], left)

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

    def _may_go(self, letter: DeadLetter) -> bool:
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
        # All are on their way before the first is awaited; each letter goes only after its own confirm.
        sent = [(delivery, letter, self._publish(letter)) for delivery, letter in letters]
        for delivery, letter, confirmed in sent:
            try:
                await confirmed
            except SendError as error:
                # The others are on their way already: kept, their letters would be sent twice.
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
