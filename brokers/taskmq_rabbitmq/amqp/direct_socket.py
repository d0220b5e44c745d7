"""pika's plain socket without its detours.

pika writes only once the loop has found that the socket takes something, and reads until the system says that there
is nothing more. That is two turns of the loop for each write and a failed call for each read, which nearly never
bring anything: the system takes what is written, and one read is all there is. Here the bytes go to the socket at
once, and what it does not take goes pika's way.

Only for connections without TLS, and only with the hooks of pika's that are looked for here: all others go pika's
way. An error in writing is left to pika, which meets it again and reports it.
"""

import socket
from typing import TYPE_CHECKING, Any, Final

from taskmq_rabbitmq.amqp.pika_types import PlainTransport
from taskmq_rabbitmq.amqp.resets import raise_reset

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Transport

__all__ = ["DirectSocket"]

_RECEIVE_BYTES: Final = 2**16
_HOOKS: Final = ("_sock", "_protocol", "_tx_buffers", "_state", "_STATE_ACTIVE", "_consume", "RxEndOfFile")


class DirectSocket:
    """To one transport's socket."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, transport: "PlainTransport", opened: socket.socket) -> None:
        self._transport = transport
        self._socket = opened

    @classmethod
    def to(cls, transport: "Transport") -> "DirectSocket | None":
        """None where there is no way but pika's. What is received comes through the shortcut from now on."""
        if not isinstance(transport, PlainTransport) or not all(hasattr(transport, hook) for hook in _HOOKS):
            return None
        opened: Any = transport._sock  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if type(opened) is not socket.socket:
            return None
        shortcut = cls(transport, opened)
        transport._consume = shortcut._receive  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return shortcut

    def send(self, data: bytes) -> bytes:
        """Write as much as the system takes at once; the rest, which is to go pika's way."""
        transport = self._transport
        # Behind what is waiting already, and nothing after an abort.
        if transport._tx_buffers or transport._state != transport._STATE_ACTIVE:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            return data
        try:
            sent = self._socket.send(data)
        except OSError:
            return data
        return data[sent:]

    def _receive(self) -> None:
        transport = self._transport
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise transport.RxEndOfFile
        transport._protocol.data_received(data)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        raise_reset(self._socket)
