"""Publisher: one channel in confirm mode, a window of unconfirmed messages, and a line before it.

A message is in one of three places: in line (`_line`), waiting until its queue is known (`_repairs`), or unconfirmed
on the channel (`_unconfirmed`, by delivery tag). The future ends with the confirm, with the broker's refusal, or at
its deadline. When the channel ends, unconfirmed messages return to the head of the line and are published on the next
channel, marked `x-taskmq-republished`: this can cause duplicates. A message whose deadline passes unconfirmed keeps
its place in the window until the channel ends, because the broker still has to process it.

A channel without confirms for a message that another channel delivers (`probe_channel`) is closed.

A message that the broker refuses (no permission, too large) closes the channel and so loses the confirms of all
others. The broker's text identifies it (`refusals`), or else each unconfirmed message is published alone: the guilty
one ends with its error, all others are published again.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.loggers import contained_logger
from taskmq.errors import (
    AccessDenied,
    BrokerBlocked,
    BrokerUnavailable,
    EncodeError,
    PublishRejected,
    PublishUnknown,
    SendError,
    TooLarge,
    Unroutable,
)
from taskmq.model.clock import Clock
from taskmq_rabbitmq.amqp.channels import GRACE_SECONDS, HELD_UP_SECONDS, ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from taskmq_rabbitmq.amqp.pika_types import ChannelClosedByBroker
from taskmq_rabbitmq.connect.backoff import patience, reconnect_backoff
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.access_refused import NOT_FOUND, refused_exchange
from taskmq_rabbitmq.model.routes import PROVEN, route_to
from taskmq_rabbitmq.publish.pending import (
    Pending,
    PublishBatch,
    sequence_of,
    transmit,
    transmit_at_once,
)
from taskmq_rabbitmq.publish.probe_channel import LOOK_SECONDS, send_elsewhere
from taskmq_rabbitmq.publish.queue_repairs import QueueRepairs
from taskmq_rabbitmq.publish.refusals import error_for, find_refused, maybe_sent

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import BasicProperties, Method, PikaChannel

_log = contained_logger(__name__)

_WINDOW: Final = 1000
_WINDOW_BYTES: Final = 32 * 2**20
_LINE_BYTES: Final = 64 * 2**20
# So that empty messages fill the line, too.
_OVERHEAD: Final = 512
_TICK: Final = 0.02
_GOOD_SECONDS: Final = 10.0
# A refusal closes the channel, so its reason is assumed for this long.
_DENIED_SECONDS: Final = 1.0
# Maximum delay of a confirm after another channel's confirm for a later message.
_LATE_SECONDS: Final = 1.0


class Publisher:
    """The publishing side of one broker object."""

    def __init__(
        self,
        connection: Connection,
        declarations: Declarations,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._declarations = declarations
        self._clock = clock
        self._loop = loop
        self._raw: AmqpChannel | None = None
        self._next_tag = 1
        self._oldest_tag = 1
        self._unconfirmed: dict[int, Pending] = {}
        self._unconfirmed_bytes = 0
        self._line: deque[Pending] = deque()
        self._line_bytes = 0
        self._alone: Pending | None = None
        self._denied: dict[str, tuple[float, str]] = {}
        self._was_solved = False
        self._open = 0
        self._all_over: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._held_up_at = 0.0
        self._upkeep: asyncio.Task[None] | None = None
        self._repairs = QueueRepairs(
            declarations, loop, unconfirmed=self._unconfirmed, refuse=self._refuse, resume=self._send_again
        )
        # Called for each message, so it is bound directly.
        self._unrepaired = self._repairs.waiting
        self._closing = False
        connection.on_unblocked = self._advance

    def __repr__(self) -> str:
        state = "ready" if self._raw is not None else "without channel"
        return f"<Publisher {state} unconfirmed={len(self._unconfirmed)} line={len(self._line)} open={self._open}>"

    def publish(self, message: Outgoing, *, timeout: float, limit: int) -> asyncio.Future[None]:
        """See `Broker.publish`; `limit` is the largest body."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._accept(Pending(message, future, self._loop.time() + timeout), limit)
        return future

    def publish_many(
        self, messages: Sequence[Outgoing], *, timeout: float, limit: int
    ) -> "asyncio.Future[list[Exception | None]]":
        """See `PublishingMany.publish_many`; `limit` is the largest body."""
        future: asyncio.Future[list[Exception | None]] = self._loop.create_future()
        deadline = self._loop.time() + timeout
        batch = PublishBatch(len(messages), future)
        for place, message in enumerate(messages):
            self._accept(Pending(message, None, deadline, batch, place), limit)
        if not messages:
            future.set_result([])
        return future

    async def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until every future has ended, then end the rest."""
        self._closing = True
        if self._open:
            self._all_over = self._loop.create_future()
            await asyncio.wait({self._all_over}, timeout=timeout)
        for pending in list(self._everything()):
            if not pending.over:
                self._end(pending, _overdue(pending, BrokerUnavailable, "the broker object was closed"))
        if self._timer is not None:
            self._timer.cancel()
        await self._repairs.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)

    def _accept(self, pending: Pending, limit: int) -> None:
        if self._closing or pending.size > limit or self._line_bytes + pending.size > _LINE_BYTES:
            pending.end(self._refusal_of(pending, limit))
            return
        self._open += 1
        if self._timer is None or pending.deadline < self._timer_at:
            self._watch(pending.deadline)
        if self._is_sent_at_once(pending):
            return
        if self._line or not self._may_write(pending):
            self._line.append(pending)
            self._line_bytes += pending.size + _OVERHEAD
            if self._upkeep is None:
                self._upkeep = self._loop.create_task(self._keep_channel(), name="taskmq publisher")
        else:
            self._write(pending)

    def _is_sent_at_once(self, pending: Pending) -> bool:
        """Publish a new typical message immediately if nothing precedes it, with fewer checks than from the line."""
        raw, tag = self._raw, self._next_tag
        size = self._unconfirmed_bytes + pending.size
        if (
            raw is None
            or pending.message.due is not None
            or self._line
            or self._unrepaired
            or self._denied
            or self._alone is not None
            or len(self._unconfirmed) >= _WINDOW
            or size > _WINDOW_BYTES
            or self._connection.blocked is not None
        ):
            return False
        try:
            if not transmit_at_once(raw, pending, tag):
                return False
        except Exception:  # noqa: BLE001 - met again in the long way, which says it
            return False
        self._unconfirmed[tag] = pending
        self._unconfirmed_bytes = size
        self._next_tag = tag + 1
        return True

    def _refusal_of(self, pending: Pending, limit: int) -> SendError:
        if self._closing:
            return BrokerUnavailable("the broker object was closed; nothing was sent")
        if pending.size > limit:
            return TooLarge(pending.size, limit, f"the message of job {pending.message.job_id}")
        return BrokerBlocked(
            f"{len(self._line):,} messages wait here already because the broker takes them too slowly; "
            "nothing was sent"
        )

    def _may_write(self, pending: Pending) -> bool:
        return (
            self._raw is not None
            and self._connection.blocked is None
            and len(self._unconfirmed) < _WINDOW
            and (not self._unconfirmed or self._unconfirmed_bytes + pending.size <= _WINDOW_BYTES)
            and (self._alone is None or self._alone.over)
            and not (pending.suspect and any(not other.over for other in self._unconfirmed.values()))
        )

    def _advance(self) -> None:
        line = self._line
        while line and (line[0].over or self._may_write(line[0])):
            pending = line.popleft()
            self._line_bytes -= pending.size + _OVERHEAD
            if not pending.over:
                self._write(pending)

    def _write(self, pending: Pending) -> None:
        message = pending.message
        delay_ms = 0 if message.due is None else message.due - self._clock.now_ms()
        exchange = delay.ENTER if delay_ms > 0 else route_to(message.queue).exchange
        # `mandatory` proves only the first level of the ladder, and no letter.
        if exchange not in PROVEN and not self._declarations.deliverable(message.queue):
            pending.lacks_exchange = False
            self._repairs.make_deliverable(pending)
            return
        if pending.lacks_exchange:
            pending.lacks_exchange = False
            self._repairs.restore_exchange(pending)
            return
        if self._unrepaired and delay_ms <= 0 and self._repairs.is_behind(pending):
            return
        if self._denied and (why := self._denial_of(exchange)) is not None:
            self._refuse(pending, AccessDenied(why))
            return
        raw, tag = self._raw, self._next_tag
        assert raw is not None
        try:
            if delay_ms > 0 or not transmit_at_once(raw, pending, tag):
                transmit(raw, pending, sequence=tag, delay_ms=delay_ms)
        except Exception as error:  # noqa: BLE001 - whatever pika's encoder meets in a header or a name
            if not raw.is_open:
                self._raw = None
                self._back_in_line([pending])
                return
            self._end(pending, EncodeError(f"job {message.job_id} has no form in AMQP: {error!r}"))
            return
        pending.returned = False
        if pending.suspect:
            self._alone = pending
        self._unconfirmed[tag] = pending
        self._unconfirmed_bytes += pending.size
        self._next_tag = tag + 1

    async def _keep_channel(self) -> None:
        backoff = reconnect_backoff()
        while True:
            try:
                channel = await self._connection.channel(None)
                await self._use(channel)
            except AccessDenied as error:
                # The connection paces its next attempt.
                self._deny(str(error))
                continue
            except (BrokerUnavailable, ChannelRefused):
                await asyncio.sleep(backoff.next())
                continue
            began = self._loop.time()
            await self._stay(channel)
            end = await channel.end()
            if self._loop.time() - began > _GOOD_SECONDS:
                backoff.reset()
            if isinstance(end, ChannelRefused) and not self._was_solved:
                await asyncio.sleep(backoff.next())

    async def _stay(self, channel: OpenChannel) -> None:
        """Return once the channel has ended; end it if it alone gets no answers."""
        since, heads = 0.0, dict[str, int]()
        while not await _has_ended(channel, LOOK_SECONDS):
            before, heads = heads, self._heads()
            stuck = [queue for queue, tag in heads.items() if before.get(queue) == tag]
            if not stuck or self._alone is not None or self._connection.blocked is not None:
                since = 0.0
                continue
            now = self._loop.time()
            since = since or now
            queue = random.choice(stuck)
            pending = self._find_awaited(queue)
            if pending is None or not await self._is_answered_elsewhere(pending, patience(now - since)):
                continue
            # Its own answer may be in transit.
            if not await _has_ended(channel, _LATE_SECONDS) and heads[queue] in self._unconfirmed:
                _log.warning("%s: replacing a channel that gets no confirms while others do", self._connection)
                self._raw = None
                channel.close()
                return

    def _heads(self) -> dict[str, int]:
        """Return the oldest unconfirmed tag of each queue."""
        heads: dict[str, int] = {}
        for tag, pending in self._unconfirmed.items():
            heads.setdefault(pending.message.queue, tag)
        return heads

    def _find_awaited(self, queue: str) -> Pending | None:
        """Return a message for the queue with a waiter; if there is none, one without a place in the window."""
        for pending in self._unconfirmed.values():
            if pending.message.queue == queue and not pending.over:
                return pending
        waiting = next((pending for pending in self._line if not pending.over), None)
        return None if waiting is None or self._may_write(waiting) else waiting

    async def _is_answered_elsewhere(self, pending: Pending, within: float) -> bool:
        """Return whether another channel has an answer for the message; after a confirm it has ended."""
        try:
            is_confirmed = await send_elsewhere(self._connection, pending, clock=self._clock, within=within)
        except Exception as error:  # noqa: BLE001 - what is wrong with a message is said where it is sent first
            _log.debug("other channels get no answers either: %r", error)
            return False
        if is_confirmed and not pending.over:
            self._end(pending, None)
        return True

    def _deny(self, why: str) -> None:
        for pending in self._line:
            if not pending.over and not pending.written:
                self._end(pending, AccessDenied(why))
        self._sweep_line()

    async def _use(self, channel: OpenChannel) -> None:
        raw = channel.raw
        raw.add_on_return_callback(self._on_return)
        await channel.request(lambda done: raw.confirm(self._on_confirm, done))
        channel.send(lambda: raw.add_on_close_callback(self._on_channel_end))
        self._raw = raw
        self._next_tag = self._oldest_tag = 1
        self._advance()

    def _on_channel_end(self, _raw: "PikaChannel", reason: Exception) -> None:
        self._raw = self._alone = None
        unconfirmed = list(self._unconfirmed.values())
        self._unconfirmed.clear()
        self._unconfirmed_bytes = 0
        if isinstance(reason, ChannelClosedByBroker):
            self._was_solved = self._attribute_refusal(unconfirmed, reason.reply_code, reason.reply_text)
        else:
            for pending in unconfirmed:
                pending.uncertain = True
        self._back_in_line([pending for pending in unconfirmed if not pending.over])

    def _back_in_line(self, before: list[Pending]) -> None:
        self._line.extendleft(reversed(before))
        self._line_bytes += sum(pending.size + _OVERHEAD for pending in before)

    def _attribute_refusal(self, unconfirmed: list[Pending], code: int, text: str) -> bool:
        """End the message over which the broker closed the channel, if it is hopeless; return whether it was."""
        refused = find_refused(unconfirmed, text)
        if refused is None:
            for pending in unconfirmed:
                pending.suspect = True
            return False
        refused.refusals += 1
        error = error_for(refused, code, text)
        if error is None:
            # A known object is gone; it is declared again.
            self._declarations.forget()
            missing = refused_exchange(text) if code == NOT_FOUND else None
            refused.lacks_exchange = missing == route_to(refused.message.queue).exchange
            return False
        if not refused.over:
            self._end(refused, error)
        if isinstance(error, AccessDenied) and (exchange := refused_exchange(text)) is not None:
            self._denied[exchange] = (self._loop.time() + _DENIED_SECONDS, str(error))
        return True

    def _denial_of(self, exchange: str) -> str | None:
        until, why = self._denied.get(exchange, (0.0, ""))
        if self._loop.time() < until:
            return why
        self._denied.pop(exchange, None)
        return None

    def _on_confirm(self, tag: int, is_multiple: bool, is_nack: bool) -> None:  # noqa: FBT001 - a positional callback of pika
        first = tag
        if is_multiple:
            first, self._oldest_tag = self._oldest_tag, tag + 1
        if is_nack:
            for each in range(first, tag + 1):
                self._reject(each)
        else:
            self._confirm(range(first, tag + 1))
        if self._unrepaired:
            self._repairs.on_answer()
        if self._line:
            self._advance()

    def _confirm(self, tags: range) -> None:
        unconfirmed = self._unconfirmed
        ended = freed = 0
        for tag in tags:
            # Some of a range may have been confirmed alone before.
            if (pending := unconfirmed.get(tag)) is None:
                continue
            if pending.returned or pending.suspect or pending.over:
                self._confirm_one(tag)
                continue
            del unconfirmed[tag]
            freed += pending.size
            ended += 1
            pending.end(None)
        self._unconfirmed_bytes -= freed
        self._count_ended(ended)

    def _confirm_one(self, tag: int) -> None:
        if (pending := self._take(tag)) is None:
            return
        if pending.returned:
            self._on_returned(pending)
        else:
            self._end(pending, None)

    def _reject(self, tag: int) -> None:
        if (pending := self._take(tag)) is not None:
            queue = pending.message.queue
            self._refuse(
                pending, PublishRejected(f"the broker refused the message: queue {queue!r} is full or has no leader")
            )

    def _refuse(self, pending: Pending, error: SendError) -> None:
        # The refusal is for this copy; a message on a lost channel may be at the broker all the same.
        self._end(pending, maybe_sent(str(error)) if pending.uncertain else error)

    def _take(self, tag: int) -> Pending | None:
        pending = self._unconfirmed.pop(tag, None)
        if pending is None:
            return None
        self._unconfirmed_bytes -= pending.size
        pending.suspect = False
        if pending is self._alone:
            self._alone = None
        return None if pending.over else pending

    def _on_return(self, _raw: "PikaChannel", _method: "Method", properties: "BasicProperties", _body: bytes) -> None:
        tag = sequence_of(properties)
        if tag is not None and (pending := self._unconfirmed.get(tag)) is not None:
            pending.returned = True

    def _on_returned(self, pending: Pending) -> None:
        queue = pending.message.queue
        if not pending.restored and pending.message.due is not None:
            # Its waiting place on the ladder is gone, not its queue.
            pending.restored = True
            pending.written = pending.uncertain
            self._declarations.forget()
            self._back_in_line([pending])
            return
        if pending.restored:
            self._refuse(pending, Unroutable(queue))
            return
        pending.restored = True
        pending.written = pending.uncertain
        self._repairs.restore(pending)

    def _send_again(self, waiting: list[Pending]) -> None:
        self._back_in_line(waiting)
        self._advance()

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        now = self._loop.time()
        due, pause = now, _TICK
        if now - self._timer_at > HELD_UP_SECONDS:
            # Each gets its grace once: with a loop that is always late, no caller would ever get an answer.
            due, pause, self._held_up_at = self._held_up_at, GRACE_SECONDS, now
        kind, why = self._timeout_error()
        for pending in list(self._everything()):
            if not pending.over and pending.deadline <= due:
                self._end(pending, _overdue(pending, kind, why))
        self._sweep_line()
        left = [pending.deadline for pending in self._everything() if not pending.over]
        if left:
            # Not more often than the tick: checking all of them has a cost.
            self._watch(max(min(left), now + pause))

    def _sweep_line(self) -> None:
        self._line = deque(pending for pending in self._line if not pending.over)
        self._line_bytes = sum(pending.size + _OVERHEAD for pending in self._line)

    def _timeout_error(self) -> "tuple[Unwritten, str]":
        connection = self._connection
        if connection.blocked is not None:
            return BrokerBlocked, f"the broker takes no messages: {connection.blocked}"
        if self._raw is not None:
            return BrokerBlocked, f"{len(self._unconfirmed):,} messages before it are not confirmed yet"
        if (denial := connection.refused) is not None:
            return AccessDenied, denial
        return BrokerUnavailable, f"no connection to {connection.address}; {connection.trouble}"

    def _everything(self) -> Iterator[Pending]:
        return itertools.chain(self._unconfirmed.values(), self._line, self._repairs.messages())

    def _end(self, pending: Pending, error: Exception | None) -> None:
        pending.end(error)
        self._count_ended(1)

    def _count_ended(self, count: int) -> None:
        self._open -= count
        if not self._open and self._all_over is not None and not self._all_over.done():
            self._all_over.set_result(None)


async def _has_ended(channel: OpenChannel, within: float) -> bool:
    await asyncio.wait({channel.ended}, timeout=within)
    return channel.ended.done()


Unwritten = type[BrokerBlocked] | type[BrokerUnavailable]


def _overdue(pending: Pending, unwritten: Unwritten, why: str) -> Exception:
    queue = pending.message.queue
    if pending.written:
        return PublishUnknown(f"queue {queue!r}: no confirm came before the deadline; {why}")
    return unwritten(f"queue {queue!r}: not sent before the deadline; {why}")
