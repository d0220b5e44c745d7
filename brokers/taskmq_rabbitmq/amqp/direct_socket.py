"""Direct access to pika's plain socket.

pika writes only once the loop reports the socket as writable, and reads until the system reports that nothing is
left. That costs two turns of the loop for each write and a failed call for each read. Nearly always they are
unnecessary: the system accepts the written bytes, and one read gets everything. This module writes to the socket
immediately, and leaves the rest to pika.

This is only for connections without TLS, and only if pika has the expected hooks; all others use pika's path. pika
meets and reports errors in writing.
"""

import socket
from typing import TYPE_CHECKING, Any, Final

from taskmq_rabbitmq.amqp.pika_types import PlainTransport
from taskmq_rabbitmq.amqp.resets import raise_reset

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Transport

_RECEIVE_BYTES: Final = 2**16
_HOOKS: Final = ("_sock", "_protocol", "_tx_buffers", "_state", "_STATE_ACTIVE", "_consume", "RxEndOfFile")


class DirectSocket:
    """Direct access to the socket of one transport."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, transport: "PlainTransport", opened: socket.socket) -> None:
        self._transport = transport
        self._socket = opened

    @classmethod
    def to(cls, transport: "Transport") -> "DirectSocket | None":
        """Return access to a transport's socket, which also reads from now on; None if only pika's path works."""
        if not isinstance(transport, PlainTransport) or not all(hasattr(transport, hook) for hook in _HOOKS):
            return None
        opened: Any = transport._sock  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if type(opened) is not socket.socket:
            return None
        shortcut = cls(transport, opened)
        transport._consume = shortcut._receive  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return shortcut

    def send(self, data: bytes) -> bytes:
        """Write as much as the system accepts immediately; return the rest, which must use pika's path."""
        transport = self._transport
        # After bytes that wait already, and never after an abort.
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
