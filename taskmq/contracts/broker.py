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
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

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
