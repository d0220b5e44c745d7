"""Detection of a reset connection whose last bytes are still unread.

uvloop reports a socket with an error once, as readable, and then no more. pika reads up to 100 KB of the bytes before
the error; if there are more it does not meet the error, and waits for a connection that no longer exists.
"""

import os
import socket
from typing import TYPE_CHECKING, Any, Final

from taskmq_rabbitmq.amqp.pika_types import PlainTransport

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Transport

_HOOKS: Final = ("_sock", "_consume")


def raise_reset(opened: socket.socket) -> None:
    """Raise an error that the system has not reported yet.

    Raises:
        OSError: there is one.
    """
    if error := opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))


def detect_resets(transport: "Transport | None") -> None:
    """Check a transport without TLS for a reset after each read; with TLS pika reads until nothing is left."""
    if not isinstance(transport, PlainTransport) or not all(hasattr(transport, hook) for hook in _HOOKS):
        return
    opened: Any = transport._sock  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    consume = transport._consume  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def read() -> None:
        consume()
        raise_reset(opened)

    transport._consume = read  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
