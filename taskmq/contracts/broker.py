"""The contract between taskmq and a message broker.

A `Broker` belongs to one event loop. Publishing and settling are plain calls, not coroutines, so that the
path of one message creates no task: `publish` returns a future, `Delivery.ack` and `Delivery.requeue` take
effect in this or the next turn of the loop. What holds for every adapter is written as tests in
`taskmq.testing.broker_suite`.

Guarantees every adapter gives:

- The future of `publish` ends inside its deadline: with None once the message is durable at the broker, or
  with one of the `SendError`s.
- A delivery that is neither acknowledged nor requeued comes back, to another consumer, once the process that
  held it is gone or its consumer's channel is lost. Its settling is then void and counted, never an error.
- A message with a future `due` is held at the broker and never delivered early.
- Messages of one physical queue come in the order of their publishing; a requeued one comes back first.
- A shard of an ordered queue (`taskmq.model.topology.is_shard`) goes to one consumer at a time. That is so until the
  consumer has stopped and all that it has of the shard is settled, or until its process or connection is gone;
  what it held then comes first to the next one.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, runtime_checkable

import msgspec

from taskmq.contracts.finding import Finding
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.clock import Clock
from taskmq.model.topology import ReportQueue, WorkQueue

__all__ = [
    "HANDED_OVER",
    "Alarming",
    "Archiving",
    "Broadcasting",
    "Broker",
    "BrokerOptions",
    "Browser",
    "Consumer",
    "Counting",
    "Deleting",
    "Delivery",
    "Diagnosable",
    "HeaderValue",
    "Listening",
    "Outgoing",
    "PublishingMany",
    "QueueStats",
    "Revocable",
    "Subscription",
    "TimeLimited",
    "is_revoked",
    "unheeded",
]

HeaderValue = str | int

_NO_HEADERS: Mapping[str, HeaderValue] = {}


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter gets when a broker is opened.

    Args:
        name: what people see at the broker for this process, for example "worker shop web-3:4711".
        clock: where `due` is compared with now.
        app: the app's name, for people who look at its queues at the broker; "": not known.
    """

    name: str = "taskmq"
    clock: Clock = msgspec.field(default_factory=SystemClock)
    app: str = ""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be published. It is never changed.

    Attributes:
        queue: a physical queue's name.
        body: the encoded envelope.
        due: not to be delivered before (ms since the epoch); None or past: at once.
        enqueued: when the job was first sent (ms since the epoch).
        root: the job that it descends from; shown as the correlation id.
        headers: few and short; the body is the truth, headers are for people and for what happened on the
            way (`x-taskmq-*`).
        priority: the broker's own number, for a queue with native priorities; a message that has to wait for its
            time loses it.
    """

    queue: str
    body: bytes
    content_type: str
    job_id: str
    task: str
    due: int | None = None
    enqueued: int | None = None
    root: str | None = None
    headers: Mapping[str, HeaderValue] = msgspec.field(default_factory=lambda: _NO_HEADERS)
    priority: int | None = None


class Delivery(Protocol):
    """A message in the hands of one consumer."""

    @property
    def body(self) -> bytes: ...

    @property
    def content_type(self) -> str | None: ...

    @property
    def queue(self) -> str:
        """The physical queue it was taken from."""
        ...

    @property
    def message_id(self) -> str | None: ...

    @property
    def task(self) -> str | None:
        """What the sender wrote beside the body; the body is the truth."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether it may have been in a consumer's hands before."""
        ...

    @property
    def headers(self) -> Mapping[str, object]: ...

    def ack(self) -> None:
        """Take the message off the broker. The first of `ack` and `requeue` counts, later ones do nothing."""
        ...

    async def ack_confirmed(self) -> bool:
        """Take the message off the broker, and return once the broker has done so.

        After True the message does not come again, whatever happens to this process. False where the delivery was
        settled or lost before, or is lost while the answer is awaited: the message may come again, and may be gone.
        """
        ...

    def requeue(self) -> None:
        """Give the message back, to the front of its queue."""
        ...


@runtime_checkable
class Revocable(Protocol):
    """A delivery that can be taken away from a process which is alive, as by the loss of its connection."""

    @property
    def revoked(self) -> bool:
        """Whether the broker gives the message to a consumer again, whatever becomes of this delivery."""
        ...


def is_revoked(delivery: Delivery) -> bool:
    """Whether the delivery was taken away (`Revocable`): running it here could only be one run too many."""
    # Asked for every delivery: to check for the protocol first takes ten times as long.
    return getattr(delivery, "revoked", False) is True


class Browser(Protocol):
    """The front of a queue in the hands of one looker, who takes it piece by piece."""

    async def take(self, count: int) -> list[Delivery]:
        """Up to `count` ready messages, those behind what was taken before; empty when nothing is ready.

        The caller need not keep them: what is not settled goes back when the look ends.

        Raises:
            QueueMissing: the queue does not exist.
            BrokerUnavailable: the broker was lost; whatever was not settled is back in the queue.
        """
        ...


class Subscription(msgspec.Struct, frozen=True):
    """A physical queue to be consumed.

    Args:
        queue: its name.
        prefetch: how many unsettled deliveries the consumer may hold; at least 1.
        longest: how many seconds a delivery may stay unsettled, where that is known: the longest time limit of
            the tasks in the queue. A broker with its own limit gets it, or the worker warns of the limit.
        is_punctual: whatever takes longer than the broker allows is settled before: no need to warn.
        is_paused: nothing is delivered before `Consumer.resume`.
    """

    queue: str
    prefetch: int
    longest: float | None = None
    is_punctual: bool = False
    is_paused: bool = False


class Consumer(Protocol):
    """Running subscriptions. Connection losses are mended inside; `deliver` is just called again."""

    async def stop(self) -> None:
        """No delivery comes after this returns; those not yet settled may still be. May be called twice."""
        ...

    async def resize(self, queue: str, prefetch: int) -> None:
        """Hold up to `prefetch` unsettled deliveries of a subscribed queue from now on.

        What is in hand stays, also beyond that. Not for shards.

        Raises:
            BrokerUnavailable: the broker was lost meanwhile; the subscription comes back with one or the other.
        """
        ...

    async def pause(self, queue: str) -> None:
        """Take nothing more from a subscribed queue until `resume`; nothing comes from it after this returns.

        What is in hand may still be settled. The broker counts no consumer of the queue here meanwhile. Again does
        nothing.
        """
        ...

    async def resume(self, queue: str) -> None:
        """Take from the queue again. Again does nothing.

        Raises:
            QueueMissing: the queue is not there, and was not declared through this broker object; it is paused still.
            BrokerUnavailable: the broker could not be reached; the queue is paused still.
        """
        ...

    @property
    def healthy(self) -> bool:
        """Whether every subscription that is not paused is live at the broker as far as this side knows."""
        ...


@runtime_checkable
class TimeLimited(Protocol):
    """A consumer whose broker takes back a delivery that stays unsettled for too long."""

    def settle_within(self, queue: str) -> float | None:
        """So many seconds after it has come, as far as is known; None where there is no limit."""
        ...


HANDED_OVER: Final = 0.75
"""Of the time of a `TimeLimited`: after that a worker with a state settles what still runs, and keeps it there."""


class QueueStats(msgspec.Struct, frozen=True):
    """A physical queue at one moment.

    Attributes:
        ready: messages that wait for a consumer.
        unsettled: messages in consumers' hands; None where the broker does not tell.
        delayed: messages that wait for their time; None where the broker does not tell by queue.
        consumers: how many consume it.
    """

    queue: str
    ready: int
    unsettled: int | None
    delayed: int | None
    consumers: int


@runtime_checkable
class Counting(Protocol):
    """A broker whose `stats` leave out what would cost too much to ask for often."""

    async def unsettled(self) -> Mapping[str, int] | None:
        """Messages in consumers' hands, by physical queue, as of some seconds ago; None where that is unknown."""
        ...

    async def delayed(self) -> int:
        """Messages that wait for their time, of all queues.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...


class Broker(Protocol):
    """One broker, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """The URL without its password, for people and logs."""
        ...

    @property
    def max_message_bytes(self) -> int:
        """`publish` refuses larger bodies with `TooLarge`."""
        ...

    async def connect(self, *, timeout: float) -> None:
        """Return once the broker answers; safe to call again.

        Raises:
            BrokerUnavailable: it did not within `timeout` seconds.
        """
        ...

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        """Make sure that the queues and what is shared by all of them exist. Idempotent.

        A broker may make class queues and dead-letter queues (`taskmq.model.topology`) when a message first needs
        them; its consumers get what is in them all the same.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties; nothing is deleted or re-created.
        """
        ...

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        """Make sure that the queues for reports exist, and get what is dropped of the invitations named. Idempotent.

        A broker that drops no messages has no need of the latter.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties; nothing is deleted or re-created.
        """
        ...

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        """Publish; the future ends once the message is durable, or with a `SendError`, within `timeout` seconds.

        A queue that was declared through this broker object and has gone since is declared once more.
        Cancelling the future does not take the message back.
        """
        ...

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        """Call `deliver`, on this loop, for each message of the queues.

        A class queue that does not exist yet is consumed once it does.

        Raises:
            QueueMissing: another queue does not exist.
            BrokerUnavailable: the broker could not be reached.
        """
        ...

    def peek(self, queue: str, *, limit: int) -> AbstractAsyncContextManager[list[Delivery]]:
        """Take up to `limit` ready messages from the front of `queue` for inspection or replay.

        What is not settled when the block ends goes back, in its old order. The list is empty when nothing
        is ready.

        Raises:
            QueueMissing: the queue does not exist.
        """
        ...

    def browse(self, queue: str) -> AbstractAsyncContextManager[Browser]:
        """Take ready messages from the front of `queue`, piece by piece, as `hold` does at once.

        What is not settled when the block ends goes back, in its old order. The messages of earlier pieces need
        no memory here, so a queue of any length can be gone through.
        """
        ...

    async def purge(self, queue: str) -> int:
        """Delete the ready messages of a physical queue; how many there were.

        Raises:
            QueueMissing: the queue does not exist.
        """
        ...

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        """The physical queues of these names that exist, in the order given."""
        ...

    async def aclose(self) -> None:
        """Wait for what was published and settled to reach the broker, then let go. May be called twice."""
        ...


@runtime_checkable
class PublishingMany(Protocol):
    """A broker for which many messages are less work together than one by one."""

    def publish_many(self, messages: Sequence[Outgoing], *, timeout: float) -> asyncio.Future[list[Exception | None]]:
        """Publish each as `Broker.publish` does; the future ends once all have ended, with what happened to each.

        Cancelling the future takes none of them back.
        """
        ...


class Listening(Protocol):
    """A running listener. Connection losses are mended inside; what is announced meanwhile is missed."""

    async def stop(self) -> None:
        """Nothing comes after this returns. May be called twice."""
        ...


def unheeded(is_connected: bool) -> None:  # noqa: FBT001 - called by position
    """For those who do not ask about the connection."""


@runtime_checkable
class Broadcasting(Protocol):
    """A broker that can tell something to everybody who listens at the moment: events, presence, commands.

    Topics are words separated by dots, at most 255 bytes. In a pattern `*` stands for one word and `#` for any
    number of them. Nothing is durable: what has no listener is gone, and what a slow listener has not taken may be
    dropped.
    """

    def announce(self, topic: str, body: bytes) -> bool:
        """Hand a message to all that listen to `topic`; False where it was dropped at once.

        Never waits, never raises for a broker that is not there; connects in the background when it is not
        connected. What was announced in one order arrives in that order.
        """
        ...

    async def listen(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connected: Callable[[bool], None] = unheeded,
    ) -> Listening:
        """Call `receive`, on this loop, with topic and body of each message that one of the patterns matches, once.

        Everything that is announced after this returns is received, by this process and others alike, as long as no
        connection is lost.

        Args:
            connected: called with False when the connection is lost, from which on announcements are missed, and with
                True when it listens again.

        Raises:
            BrokerUnavailable: the broker could not be reached, or does not let this user listen.
            TopologyMismatch: what it takes is not at the broker, and may not be declared.
        """
        ...


@runtime_checkable
class Topical(Protocol):
    """A broker on which others publish to topic exchanges, whose messages can be kept and consumed as any others.

    Patterns are as with `Broadcasting`.
    """

    async def bind(self, queue: str, *, exchange: str, patterns: Collection[str]) -> None:
        """Have the durable queue `queue` keep what is published to `exchange` under a fitting key, from now on.

        Queue and exchange are declared where they are not there. Idempotent; earlier bindings stay. The queue's
        name begins with `taskmq.model.topology.TOPIC_QUEUE`; its deliveries are `Routed`.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: one of them exists with other properties, or may not be declared and is not there.
        """
        ...


@runtime_checkable
class Routed(Protocol):
    """A delivery that came over a topic exchange."""

    @property
    def routing_key(self) -> str | None:
        """What it was published with; None where that is not known."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A broker that can keep copies of dead letters beside the letters themselves."""

    async def archived(self, *, offset: int = 0, limit: int) -> list[tuple[int, Delivery]]:
        """Up to `limit` copies from `offset` on, each with its offset; they stay, and have no need of being settled.

        Raises:
            QueueMissing: there is no archive.
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Deleting(Protocol):
    """A broker that can delete queues. taskmq deletes none but those that it has made for itself and for a moment."""

    async def delete(self, queue: str) -> int:
        """Delete a physical queue with what is in it; how many messages were ready.

        Raises:
            QueueMissing: the queue does not exist.
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Alarming(Protocol):
    """A broker that takes no messages while it is short of memory or disk, and reports that to its senders."""

    async def alarm(self) -> str | None:
        """Why it takes no messages, in its words; None while it takes them.

        Each call sends a message to no queue: an alarm that has begun since the last call is known at the next one.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """A broker that can find out what is wrong with its server."""

    async def diagnose(
        self, loads: Mapping[WorkQueue, float | None], *, watch: float = 0, hands_over: bool = False
    ) -> list[Finding]:
        """Return what is wrong or doubtful about these queues at the broker.

        Nothing is changed.

        Args:
            loads: the queues of the app, each with how many seconds its messages may stay unsettled: the longest
                time limit of its tasks, or None where one has none.
            watch: look a second time after so many seconds, where one look does not tell.
            hands_over: workers settle what takes long in time (`HANDED_OVER`), but for ordered queues.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...
