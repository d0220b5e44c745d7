"""Sources of messages from queues of other systems, for reactions."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from taskmq.contracts.broker import Delivery

__all__ = ["MessageSource", "SourceQueue"]


class SourceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of another system, from which messages are taken.

    Attributes:
        url: the broker, with user and password.
        name: the queue's.
        exchange: where it is bound to, after it was declared; "": the queue has to be there.
        keys: the routing keys it is bound under.
        prefetch: how many unsettled deliveries there may be.
        client: what people see at the broker for this process.
    """

    url: str
    name: str
    exchange: str = ""
    keys: tuple[str, ...] = ()
    prefetch: int = 100
    client: str = "taskmq"


class MessageSource(Protocol):
    """The messages of one queue. What was delivered and not settled when a connection is lost comes again."""

    @property
    def address(self) -> str:
        """The broker, without user and password."""
        ...

    async def listen(self, deliver: Callable[[Delivery], None]) -> None:
        """See to it that messages are delivered; does nothing where they are. Called again and again.

        Raises:
            BrokerUnavailable: the broker could not be reached; `AccessDenied` where it refuses the user.
            QueueMissing: the queue, or the exchange that it is to be bound to, does not exist.
            TopologyMismatch: the queue is there with other properties than it was to be declared with.
            UnsupportedFeature: something that the URL asks for.
        """
        ...

    async def stop(self) -> None:
        """Give back what is not settled, and close the connection; may be called twice."""
        ...
