"""The contract between taskmq and a message broker.

A `Broker` belongs to one event loop. Publishing and settling are plain calls, not coroutines, so that the path of one
message creates no task: `publish` returns a future; `Delivery.ack` and `Delivery.requeue` take effect in this or the
next turn of the loop. Tests in `taskmq.testing.broker_suite` check the guarantees of every adapter:

Guarantees:

- The future of `publish` ends within its deadline: with None once the message is durable at the broker, or with one
  of the `SendError`s.
- A delivery that is neither acknowledged nor requeued is redelivered to another consumer, once the process that held
  it is gone or its consumer's channel is lost. A later settlement of it has no effect and is counted, but is never an
  error.
- A message with a future `due` is held at the broker and never delivered early.
- Messages of one physical queue are delivered in the order of their publishing; a requeued message is delivered
  first.
- A shard of an ordered queue (`taskmq.model.topology.is_shard`) is delivered to one consumer at a time. The next
  consumer gets it only after the previous one has stopped and settled all that it has of the shard, or after its
  process or connection is gone; unsettled deliveries are redelivered first.
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

HeaderValue = str | int

_NO_HEADERS: Mapping[str, HeaderValue] = {}


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an adapter when a broker is opened.

    Args:
        name: name of this process for people at the broker, for example "worker shop web-3:4711".
        clock: the clock that `due` is compared with.
        app: the app's name, for people who inspect its queues at the broker; "": unknown.
    """

    name: str = "taskmq"
    clock: Clock = msgspec.field(default_factory=SystemClock)
    app: str = ""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be published. Immutable.

    Attributes:
        queue: a physical queue's name.
        body: the encoded envelope.
        due: earliest delivery (ms since the epoch); None or past: immediately.
        enqueued: when the job was first published (ms since the epoch).
        root: the job that it descends from; shown as the correlation id.
        headers: few and short; the body is authoritative, headers are for people and for the message's history
            (`x-taskmq-*`).
        priority: the broker's own number, for a queue with native priorities; a delayed message loses it.
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
    """A message that was delivered to one consumer."""

    @property
    def body(self) -> bytes: ...

    @property
    def content_type(self) -> str | None: ...

    @property
    def queue(self) -> str:
        """The physical queue that it was delivered from."""
        ...

    @property
    def message_id(self) -> str | None: ...

    @property
    def task(self) -> str | None:
        """Name of the task that the sender wrote next to the body; the body is authoritative."""
        ...

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered to a consumer before."""
        ...

    @property
    def headers(self) -> Mapping[str, object]: ...

    def ack(self) -> None:
        """Remove the message from the broker. The first of `ack` and `requeue` counts, later calls do nothing."""
        ...

    async def ack_confirmed(self) -> bool:
        """Remove the message from the broker, and return once the broker has confirmed that.

        After True the message is not delivered again, whatever happens to this process. False means that the delivery
        was settled or lost before, or is lost while the answer is awaited: the message may be redelivered, or may be
        gone.
        """
        ...

    def requeue(self) -> None:
        """Return the message to the front of its queue."""
        ...


@runtime_checkable
class Revocable(Protocol):
    """A delivery that can be revoked from a process that is alive, for example by the loss of its connection."""

    @property
    def revoked(self) -> bool:
        """Whether the broker redelivers the message, whatever happens to this delivery."""
        ...


def is_revoked(delivery: Delivery) -> bool:
    """Return whether the delivery was revoked (`Revocable`): running it here could only repeat the job."""
    # Called for every delivery: to check for the protocol first takes ten times as long.
    return getattr(delivery, "revoked", False) is True


class Browser(Protocol):
    """The front of a queue, which one caller reads piece by piece."""

    async def take(self, count: int) -> list[Delivery]:
        """Return up to `count` ready messages after those taken before; empty if nothing is ready.

        The caller need not keep them: unsettled messages return to the queue when browsing ends.

        Raises:
            QueueMissing: the queue does not exist.
            BrokerUnavailable: the connection was lost; unsettled messages are back in the queue.
        """
        ...


class Subscription(msgspec.Struct, frozen=True):
    """A physical queue to consume.

    Args:
        queue: its name.
        prefetch: maximum of unsettled deliveries at the consumer; at least 1.
        longest: maximum of seconds that a delivery may stay unsettled, if known: the longest time limit of the
            queue's tasks. The worker passes it to a broker with a limit of its own, or warns of the limit.
        is_punctual: whether deliveries are always settled within the broker's limit, so that no warning is needed.
        is_paused: whether delivery starts only with `Consumer.resume`.
    """

    queue: str
    prefetch: int
    longest: float | None = None
    is_punctual: bool = False
    is_paused: bool = False


class Consumer(Protocol):
    """Running subscriptions. Lost connections are restored internally; `deliver` is just called again."""

    async def stop(self) -> None:
        """Stop. No delivery arrives after this returns; unsettled ones can still be settled. May be called twice."""
        ...

    async def resize(self, queue: str, prefetch: int) -> None:
        """Allow up to `prefetch` unsettled deliveries of a subscribed queue from now on.

        Deliveries in hand stay, even beyond that. Not for shards.

        Raises:
            BrokerUnavailable: the connection was lost meanwhile; the old or the new value applies.
        """
        ...

    async def pause(self, queue: str) -> None:
        """Stop the delivery of a subscribed queue until `resume`; no delivery of it arrives after this returns.

        Deliveries in hand can still be settled. The broker counts no consumer of the queue here meanwhile. May be
        called twice.
        """
        ...

    async def resume(self, queue: str) -> None:
        """Continue the delivery of a paused queue. May be called twice.

        Raises:
            QueueMissing: the queue does not exist, and was not declared through this broker object; it stays paused.
            BrokerUnavailable: the broker could not be reached; the queue stays paused.
        """
        ...

    @property
    def healthy(self) -> bool:
        """Whether every subscription that is not paused is live at the broker, as far as this side knows."""
        ...


@runtime_checkable
class TimeLimited(Protocol):
    """A consumer whose broker takes back a delivery that stays unsettled for too long."""

    def settle_within(self, queue: str) -> float | None:
        """Return that limit in seconds after the delivery, as far as is known; None if there is none."""
        ...


HANDED_OVER: Final = 0.75
"""Fraction of that limit after which a worker with a state settles a running job and keeps it in the state."""


class QueueStats(msgspec.Struct, frozen=True):
    """A physical queue at one moment.

    Attributes:
        ready: messages that wait for a consumer.
        unsettled: messages delivered and not settled; None if the broker does not report them.
        delayed: messages that are not yet due; None if the broker does not report them by queue.
        consumers: number of consumers.
    """

    queue: str
    ready: int
    unsettled: int | None
    delayed: int | None
    consumers: int


@runtime_checkable
class Counting(Protocol):
    """A broker whose `stats` omit numbers that are too expensive to request often."""

    async def count_unsettled(self) -> Mapping[str, int] | None:
        """Return messages delivered and not settled by physical queue, some seconds old; None if they are unknown."""
        ...

    async def count_delayed(self) -> int:
        """Return the number of messages that are not yet due, in all queues.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...


class Broker(Protocol):
    """A broker, as one event loop of one process sees it. Connects on first use."""

    @property
    def address(self) -> str:
        """URL without its password, for people and logs."""
        ...

    @property
    def max_message_bytes(self) -> int:
        """Maximum size of a body; `publish` refuses larger ones with `TooLarge`."""
        ...

    async def connect(self, *, timeout: float) -> None:
        """Return once the broker answers; safe to repeat.

        Raises:
            BrokerUnavailable: it did not answer within `timeout` seconds.
        """
        ...

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        """Ensure that the queues and the shared objects exist. Idempotent.

        A broker may declare class queues and dead-letter queues (`taskmq.model.topology`) with their first message;
        its consumers receive their messages all the same.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties; nothing is deleted or re-created.
        """
        ...

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        """Ensure that the queues for reports exist, and that dropped invitations of the named queues go there.

        Idempotent.

        A broker that drops no messages needs nothing for the latter.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: an object exists with other properties; nothing is deleted or re-created.
        """
        ...

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        """Publish; the future ends once the message is durable, or with a `SendError`, within `timeout` seconds.

        A queue that was declared through this broker object and was deleted since is declared again. Cancelling the
        future does not take the message back.
        """
        ...

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        """Call `deliver`, on this loop, for each message of the queues.

        A class queue that does not exist yet is consumed once it exists.

        Raises:
            QueueMissing: another queue does not exist.
            BrokerUnavailable: the broker could not be reached.
        """
        ...

    def browse(self, queue: str) -> AbstractAsyncContextManager[Browser]:
        """Read ready messages from the front of `queue` piece by piece.

        Unsettled messages return to the queue in their old order when the block ends. Earlier pieces need no memory
        here, so a queue of any length can be browsed.
        """
        ...

    async def purge(self, queue: str) -> int:
        """Delete the ready messages of a physical queue; return their number.

        Raises:
            QueueMissing: the queue does not exist.
        """
        ...

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        """Return the statistics of those physical queues that exist, in the given order."""
        ...

    async def aclose(self) -> None:
        """Wait until published and settled messages have reached the broker, then close. May be called twice."""
        ...


@runtime_checkable
class PublishingMany(Protocol):
    """A broker for which publishing many messages together is cheaper than one by one."""

    def publish_many(self, messages: Sequence[Outgoing], *, timeout: float) -> asyncio.Future[list[Exception | None]]:
        """Publish each message like `Broker.publish`; the future ends with the result of each once all have ended.

        Cancelling the future takes none of them back.
        """
        ...


@runtime_checkable
class Parcelling(Protocol):
    """A broker for which one message with several stored jobs costs much less than one message for each."""

    parcels: bool


class Listening(Protocol):
    """A running listener. Lost connections are restored internally; announcements meanwhile are missed."""

    async def stop(self) -> None:
        """Stop. No message arrives after this returns. May be called twice."""
        ...


def ignore_connection(is_connected: bool) -> None:  # noqa: FBT001 - called by position
    """Ignore the state of the connection: the default for callers that do not track it."""


@runtime_checkable
class Broadcasting(Protocol):
    """A broker that can broadcast to all present listeners: events, presence, commands.

    Topics are words separated by dots, at most 255 bytes. In a pattern `*` stands for one word and `#` for any number
    of them. Nothing is durable: a message without a listener is lost, and a slow listener may miss messages.
    """

    def announce(self, topic: str, body: bytes) -> bool:
        """Broadcast a message to all listeners of `topic`; return False if it was dropped immediately.

        Never waits, and never raises if the broker is unavailable; connects in the background if needed.
        Announcements arrive in their order.
        """
        ...

    async def listen(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> Listening:
        """Call `receive`, on this loop, with topic and body of each message that one of the patterns matches, once.

        Everything that any process announces after this returns is received, while no connection is lost.

        Args:
            connected: called with False when the connection is lost, after which announcements are missed, and with
                True when listening resumes.

        Raises:
            BrokerUnavailable: the broker could not be reached, or this user may not listen.
            TopologyMismatch: a needed object does not exist at the broker, and this user may not declare it.
        """
        ...


@runtime_checkable
class Topical(Protocol):
    """A broker with topic exchanges, whose messages can be kept in queues and consumed like any others.

    Patterns are as with `Broadcasting`.
    """

    async def bind(self, queue: str, *, exchange: str, patterns: Collection[str]) -> None:
        """Have the durable queue `queue` keep what is published to `exchange` under a matching key, from now on.

        Missing queues and exchanges are declared. Idempotent; earlier bindings stay. The queue's name begins with
        `taskmq.model.topology.TOPIC_QUEUE`; its deliveries are `Routed`.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: one of them exists with other properties, or is missing and may not be declared.
        """
        ...


@runtime_checkable
class Routed(Protocol):
    """A delivery that was published to a topic exchange."""

    @property
    def routing_key(self) -> str | None:
        """Routing key of the message; None if it is unknown."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A broker that can keep copies of dead letters next to the letters themselves."""

    async def read_archive(self, *, offset: int = 0, limit: int) -> list[tuple[int, Delivery]]:
        """Return up to `limit` copies from `offset` on, each with its offset; they stay, and need not be settled.

        Raises:
            QueueMissing: there is no archive.
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Deleting(Protocol):
    """A broker that can delete queues. taskmq deletes only queues that it created for itself for a moment."""

    async def delete(self, queue: str) -> int:
        """Delete a physical queue with its messages; return the number of ready messages.

        Raises:
            QueueMissing: the queue does not exist.
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Alarming(Protocol):
    """A broker that accepts no messages while it is short of memory or disk, and informs its publishers."""

    async def alarm(self) -> str | None:
        """Return the broker's reason for accepting no messages; None while it accepts them.

        Each call publishes a message to no queue: an alarm that began since the last call is known at the next one.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """A broker that can diagnose its server."""

    async def diagnose(
        self, loads: Mapping[WorkQueue, float | None], *, watch: float = 0, hands_over: bool = False
    ) -> list[Finding]:
        """Return problems and doubtful settings of these queues at the broker.

        Nothing is changed.

        Args:
            loads: the queues of the app, each with the maximum seconds that its messages may stay unsettled: the
                longest time limit of its tasks, or None if a task has none.
            watch: check a second time after this many seconds, if one check is not enough.
            hands_over: whether workers settle long runs in time (`HANDED_OVER`), except in ordered queues.

        Raises:
            BrokerUnavailable: the broker could not be reached.
        """
        ...
