"""Types of the part of pika that is used here.

pika carries no type information that checkers may rely on, so what is used is declared here. What is changed in
it stands in `fast_connection`. These names are private to pika, so its minor version is pinned; that each of them is
there is tested by `tests/unit/rabbitmq/amqp/test_pika_types.py`, on the newest pika that there is, 1.4.4:

- connection, for the fast wire: `_output_marshaled_frames`, `_on_data_available`, `_frame_buffer`, `_transport`; for
  both wires: `_create_channel`, `_create_heartbeat_checker`, `_on_connection_workflow_done`, `_terminate_stream`,
  `_error`. Noticed by `tests/conformance/test_rabbitmq.py`, which runs on both wires, and by
  `tests/integration/test_rabbitmq_outages.py`.
- channel: `_consumers`, `_set_state`, `_on_deliver`. Noticed by `tests/integration/test_rabbitmq_recovery.py`.
- socket without TLS: `_sock`, `_protocol`, `_consume`, `_tx_buffers`, `_state`, `_STATE_ACTIVE`, and with it
  `_MAX_RECV_BYTES`. Noticed by `tests/unit/rabbitmq/amqp/test_direct_socket.py`; without them bytes go pika's way.
- heartbeats: `_connection`, `_timeout`, `_send_interval`, `_send_timer`, `_start_send_timer`, `_start_check_timer`,
  and the connection's `_adapter_remove_timeout`. Noticed by `tests/integration/test_rabbitmq_held_up.py`.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from taskmq.contracts.loggers import contain_below

if TYPE_CHECKING:

    class Method(Protocol):
        """Arguments of a method frame; the present ones depend on the method."""

        delivery_tag: int
        multiple: bool
        redelivered: bool
        consumer_tag: str
        routing_key: str
        message_count: int
        consumer_count: int
        reply_code: int
        reply_text: str
        reason: str

    class MethodFrame(Protocol):
        """A frame that pika passes to a callback."""

        method: Method

    class Transport(Protocol):
        """pika's socket."""

        _MAX_RECV_BYTES: int

        def write(self, data: bytes) -> None: ...
        def abort(self) -> None: ...
        def get_write_buffer_size(self) -> int: ...

    class Receiver(Protocol):
        """Receiver of a socket's data."""

        def data_received(self, data: bytes) -> None: ...

    class PlainTransport(Transport):
        """pika's socket without TLS."""

        RxEndOfFile: type[OSError]
        _STATE_ACTIVE: int
        _state: int
        _sock: object
        _protocol: Receiver
        _tx_buffers: Sequence[bytes]
        _consume: Callable[[], None]

    class BasicProperties:
        """A message's properties."""

        content_type: str | bytes | None
        message_id: str | bytes | None
        type: str | bytes | None
        headers: Mapping[str | bytes, object] | None

        def __init__(
            self,
            *,
            content_type: str | None = None,
            content_encoding: str | None = None,
            headers: Mapping[str, str | int | list[str]] | None = None,
            delivery_mode: int | None = None,
            priority: int | None = None,
            correlation_id: str | None = None,
            message_id: str | None = None,
            timestamp: int | None = None,
            type: str | None = None,  # noqa: A002 - pika's name
            app_id: str | None = None,
        ) -> None: ...

    Done = Callable[[MethodFrame], None]
    Arguments = Mapping[str, str | int]
    OnMessage = Callable[["PikaChannel", Method, BasicProperties, bytes], None]

    class PikaChannel:
        """pika's channel."""

        is_open: bool
        is_closing: bool
        is_closed: bool
        channel_number: int
        connection: "PikaConnection"
        OPEN: int
        _consumers: dict[str, OnMessage]

        def __init__(
            self,
            connection: "PikaConnection",
            channel_number: int,
            on_open_callback: Callable[["PikaChannel"], None] | None,
        ) -> None: ...
        def _set_state(self, connection_state: int) -> None: ...
        def add_on_close_callback(self, callback: Callable[["PikaChannel", Exception], None]) -> None: ...
        def add_on_cancel_callback(self, callback: Done) -> None: ...
        def add_on_return_callback(self, callback: OnMessage) -> None: ...
        def flow(self, active: bool, callback: Callable[[bool], object]) -> None: ...  # noqa: FBT001 - pika's signature
        def basic_ack(self, delivery_tag: int) -> None: ...
        def basic_nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None: ...
        def basic_qos(self, *, prefetch_count: int, callback: Done) -> None: ...
        def basic_cancel(self, consumer_tag: str, callback: Done) -> None: ...
        def basic_consume(
            self,
            queue: str,
            on_message_callback: OnMessage,
            *,
            auto_ack: bool = False,
            consumer_tag: str,
            arguments: Arguments,
            callback: Done,
        ) -> str: ...
        def basic_publish(
            self, exchange: str, routing_key: str, body: bytes, properties: BasicProperties, *, mandatory: bool
        ) -> None: ...
        def confirm_delivery(self, ack_nack_callback: Done, callback: Done) -> None: ...
        def exchange_declare(
            self,
            exchange: str,
            exchange_type: str = "direct",
            *,
            passive: bool = False,
            durable: bool = False,
            arguments: Arguments | None = None,
            callback: Done | None = None,
        ) -> None: ...
        def exchange_bind(
            self, destination: str, source: str, routing_key: str, *, callback: Done | None = None
        ) -> None: ...
        def queue_declare(
            self,
            queue: str,
            *,
            passive: bool = False,
            durable: bool = False,
            exclusive: bool = False,
            auto_delete: bool = False,
            arguments: Arguments | None = None,
            callback: Done | None = None,
        ) -> None: ...
        def queue_bind(
            self, queue: str, exchange: str, routing_key: str, *, callback: Done | None = None
        ) -> None: ...
        def queue_delete(self, queue: str, *, callback: Done) -> None: ...
        def queue_purge(self, queue: str, callback: Done) -> None: ...
        def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None: ...
        def _on_deliver(self, method_frame: MethodFrame, header_frame: "HeaderFrame", body: bytes) -> None: ...

    class HeaderFrame(Protocol):
        """A content header."""

        properties: BasicProperties

    class IOServices:
        """Requirements of pika on an asyncio loop."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
        def get_native_ioloop(self) -> asyncio.AbstractEventLoop: ...

    class PikaConnection:
        """pika's connection on asyncio."""

        is_open: bool
        is_closing: bool
        is_closed: bool
        server_properties: Mapping[str, object] | None
        bytes_sent: int
        bytes_received: int
        frames_sent: int
        params: "ConnectionParameters"
        _error: Exception | None
        _frame_buffer: bytes
        _transport: Transport | None

        def __init__(
            self,
            parameters: object,
            on_open_callback: Callable[["PikaConnection"], None],
            on_open_error_callback: Callable[["PikaConnection", BaseException], None],
            on_close_callback: Callable[["PikaConnection", BaseException], None],
            custom_ioloop: IOServices,
        ) -> None: ...
        def add_on_connection_blocked_callback(
            self, callback: Callable[["PikaConnection", MethodFrame], None]
        ) -> None: ...
        def add_on_connection_unblocked_callback(
            self, callback: Callable[["PikaConnection", MethodFrame], None]
        ) -> None: ...
        def channel(self, *, on_open_callback: Callable[[PikaChannel], None]) -> PikaChannel: ...
        def update_secret(self, new_secret: str, reason: str) -> None: ...
        def close(self) -> None: ...
        def _create_channel(
            self, channel_number: int, on_open_callback: Callable[[PikaChannel], None] | None
        ) -> PikaChannel: ...
        def _output_marshaled_frames(self, marshaled_frames: Sequence[bytes]) -> None: ...
        def _on_data_available(self, data_in: bytes) -> None: ...
        def _on_connection_workflow_done(self, conn_or_exc: object) -> None: ...
        def _terminate_stream(self, error: Exception | None) -> None: ...

        def _adapter_remove_timeout(self, timeout_id: object) -> None: ...
        def _create_heartbeat_checker(self) -> "HeartbeatChecker | None": ...

    class HeartbeatChecker:
        """pika's heartbeats, by which neither side takes the other for dead."""

        _connection: PikaConnection
        _timeout: int
        _send_interval: float
        _send_timer: object | None

        def __init__(self, connection: PikaConnection, timeout: int) -> None: ...
        def _start_send_timer(self) -> None: ...
        def _start_check_timer(self) -> None: ...

    class AMQPError(Exception):
        """pika's root error."""

    class StreamLostError(AMQPError):
        """The socket is gone."""

    class ChannelClosedByBroker(AMQPError):
        """The broker refused something."""

        reply_code: int
        reply_text: str

    class AuthenticationError(AMQPError):
        """No way to authenticate in common."""

    class Nack(Method):
        """basic.nack."""

    def decode_table(encoded: bytes, offset: int) -> tuple[Mapping[str | bytes, object], int]:
        """Return the AMQP table at `offset`, and its end."""
        ...

    class Start(Protocol):
        """connection.start: what the broker offers."""

        mechanisms: str | bytes
        server_properties: Mapping[str, object] | None

    class PlainCredentials:
        """User and password."""

        username: str
        password: str

        def __init__(self, username: str, password: str) -> None: ...

    class ExternalCredentials:
        """The user that TLS names."""

        def __init__(self) -> None: ...

    class SSLOptions:
        """TLS for one host."""

        def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None: ...

    class ConnectionParameters:
        """pika's parameters for connecting to one host; on a connection, the negotiated ones."""

        frame_max: int
        heartbeat: int

        def __init__(
            self,
            *,
            host: str,
            port: int,
            virtual_host: str,
            credentials: PlainCredentials | ExternalCredentials,
            heartbeat: int,
            ssl_options: SSLOptions | None,
            client_properties: Mapping[str, object],
            connection_attempts: int,
            socket_timeout: float,
            stack_timeout: float,
        ) -> None: ...

else:
    from pika import BasicProperties, ConnectionParameters, PlainCredentials, SSLOptions
    from pika.adapters.asyncio_connection import AsyncioConnection as PikaConnection
    from pika.adapters.asyncio_connection import _AsyncioIOServicesAdapter as IOServices
    from pika.adapters.utils.io_services_utils import _AsyncPlaintextTransport as PlainTransport
    from pika.channel import Channel as PikaChannel
    from pika.credentials import ExternalCredentials
    from pika.data import decode_table
    from pika.exceptions import (
        AMQPError,
        AuthenticationError,
        ChannelClosedByBroker,
        StreamLostError,
    )
    from pika.heartbeat import HeartbeatChecker
    from pika.spec import Basic

    Nack = Basic.Nack

__all__ = [
    "AMQPError",
    "AuthenticationError",
    "BasicProperties",
    "ChannelClosedByBroker",
    "ConnectionParameters",
    "ExternalCredentials",
    "HeartbeatChecker",
    "IOServices",
    "Nack",
    "PikaChannel",
    "PikaConnection",
    "PlainCredentials",
    "PlainTransport",
    "SSLOptions",
    "StreamLostError",
    "decode_table",
    "silence_pika",
    "text_of",
]


def silence_pika() -> None:
    """Keep pika from logging what taskmq raises as a typed error, unless its log level was set.

    If pika does log, errors of the program's handlers do not end the connection.
    """
    contain_below("pika")
    logger = logging.getLogger("pika")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


def text_of(value: object) -> str | None:
    """Return a property as text; pika leaves values that are not UTF-8 as bytes."""
    return value if isinstance(value, str) else None
