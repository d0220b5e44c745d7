"""Abilities that a broker, its consumers and its deliveries may have beyond the contract.

taskmq asks for each with `isinstance`, and does without those that are missing.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from taskmq.contracts.broker import Delivery, Outgoing
from taskmq.contracts.finding import Finding
from taskmq.model.topology import WorkQueue


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


@runtime_checkable
class TimeLimited(Protocol):
    """A consumer whose broker takes back a delivery that stays unsettled for too long."""

    def settle_within(self, queue: str) -> float | None:
        """Return that limit in seconds after the delivery, as far as is known; None if there is none."""
        ...


HANDED_OVER: Final = 0.75
"""Fraction of that limit after which a worker with a state settles a running job and keeps it in the state."""


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
