"""Sources of messages from queues of other systems, for reactions."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from taskmq.contracts.broker import Delivery


class SourceQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of another system that messages are consumed from.

    Attributes:
        url: the broker, with user and password.
        name: the queue's name.
        exchange: the exchange that it is bound to after its declaration; "": the queue must exist.
        keys: the routing keys of its bindings.
        prefetch: maximum of unsettled deliveries.
        client: name of this process for people at the broker.
    """

    url: str
    name: str
    exchange: str = ""
    keys: tuple[str, ...] = ()
    prefetch: int = 100
    client: str = "taskmq"


class MessageSource(Protocol):
    """The messages of one queue. Unsettled deliveries of a lost connection are redelivered."""

    @property
    def address(self) -> str:
        """URL of the broker, without user and password."""
        ...

    async def listen(self, deliver: Callable[[Delivery], None]) -> None:
        """Ensure that messages are delivered; does nothing if they are. Called repeatedly.

        Raises:
            BrokerUnavailable: the broker could not be reached; `AccessDenied` where it refuses the user.
            QueueMissing: the queue, or the exchange that it is to be bound to, does not exist.
            TopologyMismatch: the queue exists with other properties than those to declare.
            UnsupportedFeature: the URL requires something unsupported.
        """
        ...

    async def stop(self) -> None:
        """Return unsettled deliveries, and close the connection; may be called twice."""
        ...
