"""pika's connection and channel with a fast path for frames that occur per message.

Everything that occurs once (opening, declaring, consuming, cancelling, closing, heartbeats) stays pika's. Deliveries
and confirms are read from the received bytes, and publishes and settlements are written as ready bytes (`frames`).
The frames of one turn of the loop leave in one write, many of them in several. `?wire=plain` in the URL leaves all of
it to pika: the same calls, the reference for tests, and the fallback for a pika without the private hooks.

Three things are changed in both modes: deliveries reach their consumer until cancel-ok, so that the consumer decides
about late ones (`_on_deliver`); heartbeats are taskmq's (`Heartbeats`); and a bug of pika 1.4.4 is fixed
(`_on_connection_workflow_done`). The hooks are private to pika, whose minor version is pinned for that reason.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskmq.contracts.broker import HeaderValue
from taskmq.contracts.loggers import contained_logger
from taskmq_rabbitmq.amqp.ack_batch import AckBatch, AckFlush
from taskmq_rabbitmq.amqp.direct_socket import DirectSocket
from taskmq_rabbitmq.amqp.frames import NOT_MANDATORY, FrameReader, publish_frames
from taskmq_rabbitmq.amqp.heartbeats import Heartbeats
from taskmq_rabbitmq.amqp.pika_types import (
    BasicProperties,
    ConnectionParameters,
    Nack,
    PikaChannel,
    PikaConnection,
    StreamLostError,
    text_of,
)
from taskmq_rabbitmq.amqp.properties import WireError, fleeting_properties, properties_bytes
from taskmq_rabbitmq.amqp.publish_template import APP_ID, PublishTemplate, TemplateKey
from taskmq_rabbitmq.amqp.received_properties import Incoming, Properties
from taskmq_rabbitmq.amqp.resets import detect_resets
from taskmq_rabbitmq.amqp.resolver import ResolvingServices
from taskmq_rabbitmq.model.url import Wire

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Done, HeaderFrame, MethodFrame

_log = contained_logger(__name__)
_RECEIVE_BYTES: Final = 2**16
# Seconds that an acknowledgement waits for others.
_LINGER: Final = 0.001
# Number of frames that are written before the end of the turn of the loop, so that the broker can start on them; it
# doubles with each write in a turn.
_MANY: Final = 32
_JSON: Final = "application/json"
# Calls may name queues, so their number has no limit.
_MOST_TEMPLATES: Final = 1000
_FLEETING: Final = fleeting_properties(content_type=_JSON, app_id=APP_ID)
_NO_TEMPLATES: Final[dict[TemplateKey, PublishTemplate]] = {}
_HOOKS: Final = (
    "_output_marshaled_frames", "_on_data_available", "_create_channel", "_on_connection_workflow_done",
    "_terminate_stream",
)  # fmt: skip


OnDelivery = Callable[[int, bool, Properties, bytes], None]
OnConfirm = Callable[[int, bool, bool], None]


class AmqpChannel(PikaChannel):
    """pika's channel with plain calls for frames that occur per message.

    Attributes:
        is_live: whether it is open; an attribute, because every delivery reads it.
        templates: templates by key; replaced by a new dictionary now and then.
    """

    lane: "AmqpConnection | None" = None
    templates: dict[TemplateKey, PublishTemplate] = _NO_TEMPLATES
    is_live: bool = False
    _on_delivery: OnDelivery | None = None
    _acks: AckBatch | None = None
    _acks_due: AckFlush | None = None

    def receive(self, call: OnDelivery) -> None:
        """Pass this channel's deliveries to `call(tag, redelivered, properties, body)`."""
        self._on_delivery = call
        if self.lane is not None:
            self.lane.reader.deliver_to(self.channel_number, call)

    def receive_addressed(self, call: OnDelivery) -> None:
        """Pass deliveries with the routing key in the properties."""
        self._on_delivery = call
        if self.lane is not None:
            self.lane.reader.deliver_addressed_to(self.channel_number, call)

    def confirm(self, call: OnConfirm, done: "Done") -> None:
        """Enable confirms and pass them to `call(tag, is_multiple, is_nack)`; call `done` once they are enabled."""

        def on_confirms(frame: "MethodFrame") -> None:
            method = frame.method
            call(method.delivery_tag, method.multiple, isinstance(method, Nack))

        if self.lane is not None:
            self.lane.reader.confirm_to(self.channel_number, call)
        self.confirm_delivery(on_confirms, done)

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        # pika would cancel the consumers first. RabbitMQ would then give a shard to its next consumer before
        # unsettled messages here are back in the queue; the end of the channel is one step.
        self._consumers.clear()
        super().close(reply_code, reply_text)

    def forget(self) -> None:
        """Pass on no more frames: the channel has ended and its number may be reused."""
        if self.lane is not None:
            self.lane.reader.forget(self.channel_number)

    def ack(self, tag: int) -> None:
        """Acknowledge a delivery with the next write."""
        self.ack_batched(tag)
        if self.lane is not None:
            self.lane.flush_soon()

    def ack_batched(self, tag: int) -> None:
        """Acknowledge a delivery a millisecond later, with others, unless another frame is written before."""
        due = self._acks_due
        if due is not None and due.built is None:
            due.tags.append(tag)
        elif self.lane is None:
            self.basic_ack(tag)
        else:
            if self._acks is None:
                self._acks = AckBatch(self.channel_number)
            due = self._acks_due = AckFlush(self._acks)
            due.tags.append(tag)
            self.lane.flush_later(due)

    def requeue(self, tag: int) -> None:
        """Return a delivery by a nack, because RabbitMQ 4.3 counts a reject as a failed delivery."""
        if self.lane is None:
            self.basic_nack(tag)
            return
        if self._acks is None:
            self._acks = AckBatch(self.channel_number)
        if self._acks_due is not None:
            self._acks_due.frames()
        self.lane.send(self._acks.requeue(tag))

    def _set_state(self, connection_state: int) -> None:
        super()._set_state(connection_state)
        self.is_live = connection_state == self.OPEN

    def keep_template(self, key: TemplateKey, template: PublishTemplate) -> None:
        """Keep a template in `templates`; when there are many, forget the others."""
        if not 0 < len(self.templates) < _MOST_TEMPLATES:
            self.templates = {}
        self.templates[key] = template

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str | None,
        headers: Mapping[str, HeaderValue | list[str]],
        correlation_id: str,
        message_id: str,
        timestamp: int | None,
        kind: str,
        app_id: str,
        priority: int | None = None,
    ) -> None:
        """Publish a persistent message, mandatory.

        Raises:
            Exception: it cannot be encoded; nothing was written.
        """
        if self.lane is not None:
            properties = properties_bytes(
                content_type=content_type,
                content_encoding=content_encoding,
                headers=headers,
                correlation_id=correlation_id,
                message_id=message_id,
                timestamp=timestamp,
                kind=kind,
                app_id=app_id,
                priority=priority,
            )
            self.lane.send(
                publish_frames(
                    self.channel_number,
                    exchange.encode(),
                    routing_key.encode(),
                    properties,
                    body,
                    frame_max=self.lane.params.frame_max,
                )
            )
            return
        self.basic_publish(
            exchange,
            routing_key,
            body,
            BasicProperties(
                content_type=content_type,
                content_encoding=content_encoding,
                headers=headers,
                delivery_mode=2,
                priority=priority,
                correlation_id=correlation_id,
                message_id=message_id,
                timestamp=timestamp,
                type=kind,
                app_id=app_id,
            ),
            mandatory=True,
        )

    @property
    def unsent(self) -> int:
        """Bytes of the whole connection that the system has not accepted yet."""
        return 0 if self.lane is None else self.lane.unsent

    def announce(self, exchange: str, routing_key: str, body: bytes) -> None:
        """Publish a JSON message that is neither persistent nor mandatory.

        Raises:
            Exception: it cannot be encoded; nothing was written.
        """
        if self.lane is None:
            properties = BasicProperties(content_type=_JSON, delivery_mode=1, app_id=APP_ID)
            self.basic_publish(exchange, routing_key, body, properties, mandatory=False)
            return
        self.lane.send(
            publish_frames(
                self.channel_number,
                exchange.encode(),
                routing_key.encode(),
                _FLEETING,
                body,
                frame_max=self.lane.params.frame_max,
                bits=NOT_MANDATORY,
            )
        )

    def _on_deliver(self, method_frame: "MethodFrame", header_frame: "HeaderFrame", body: bytes) -> None:
        # pika would reject deliveries after basic.cancel; RabbitMQ 4.3 counts a reject as a failed delivery.
        method = method_frame.method
        if self._on_delivery is not None and method.consumer_tag in self._consumers:
            properties = Incoming(header_frame.properties, text_of(method.routing_key))
            self._on_delivery(method.delivery_tag, method.redelivered, properties, body)


class AmqpConnection(PikaConnection):
    """pika's connection with the fast path, unless `wire` is `plain`."""

    def __init__(
        self,
        parameters: ConnectionParameters,
        *,
        loop: asyncio.AbstractEventLoop,
        wire: Wire,
        on_open: Callable[[PikaConnection], None],
        on_open_error: Callable[[PikaConnection, BaseException], None],
        on_close: Callable[[PikaConnection, BaseException], None],
    ) -> None:
        self._loop = loop
        self._outbox: list[bytes | AckFlush] = []
        self._is_fast = wire == "fast" and all(hasattr(PikaConnection, hook) for hook in _HOOKS)
        self._has_been_heard = False
        self._is_reading = False
        self._is_due = False
        self._many = _MANY
        self._lingering: asyncio.TimerHandle | None = None
        self._shortcut: DirectSocket | None = None
        self.reader = FrameReader(super()._on_data_available)
        super().__init__(
            parameters,
            on_open_callback=on_open,
            on_open_error_callback=on_open_error,
            on_close_callback=on_close,
            custom_ioloop=ResolvingServices(loop),
        )

    def open_channel(self, on_open: Callable[[], None]) -> AmqpChannel:
        """Return a channel that is being opened."""
        channel = self.channel(on_open_callback=lambda _: on_open())
        assert isinstance(channel, AmqpChannel)
        return channel

    def send(self, frames: bytes) -> None:
        """Write ready frames, together with others of this turn of the loop."""
        outbox = self._outbox
        outbox.append(frames)
        if not self._is_due:
            self.flush_soon()
        elif len(outbox) >= self._many and self._shortcut is not None:
            self._many *= 2
            self._write_out()

    def flush_later(self, acks: AckFlush) -> None:
        """Write the acknowledgements with the next frames, or in a moment."""
        self._outbox.append(acks)
        if not self._is_due and self._lingering is None:
            self._lingering = self._loop.call_later(_LINGER, self._flush)

    def flush_soon(self) -> None:
        """Write the collected frames in this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    @property
    def unsent(self) -> int:
        """Bytes written in earlier turns of the loop that the system has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self, reason: str) -> None:
        """Drop the socket without a handshake; the callbacks of a lost connection follow."""
        if self._transport is not None:
            # Without an error pika fails on an assertion then, and never calls its callbacks.
            self._terminate_stream(StreamLostError(reason) if self._error is None else None)

    def _create_channel(
        self, channel_number: int, on_open_callback: Callable[[PikaChannel], None] | None
    ) -> PikaChannel:
        channel = AmqpChannel(self, channel_number, on_open_callback)
        if self._is_fast:
            channel.lane = self
        return channel

    def _create_heartbeat_checker(self) -> Heartbeats | None:
        return Heartbeats(self, self.params.heartbeat) if self.params.heartbeat else None

    def _on_data_available(self, data_in: bytes) -> None:
        if not self._is_reading:
            if not self._has_been_heard:
                self._has_been_heard = True
                detect_resets(self._transport)
            # Until it is open only pika reads; the switch happens at the border of a frame.
            if not (self._is_fast and self.is_open and not self._frame_buffer):
                super()._on_data_available(data_in)
                return
            self._is_reading = True
            self.reader.frame_max = self.params.frame_max
            if self._transport is not None:
                self._shortcut = DirectSocket.to(self._transport)
                # pika's own 4 KiB cost a system call for every few messages.
                self._transport._MAX_RECV_BYTES = _RECEIVE_BYTES  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        received = self.bytes_received + len(data_in)
        try:
            self.reader.feed(data_in)
        except WireError as error:
            self.abort(f"what the broker sends cannot be read: {error}")
        # Heartbeats rely on it; pika has counted its own frames only.
        self.bytes_received = received

    def _output_marshaled_frames(self, marshaled_frames: Sequence[bytes]) -> None:
        if not self._is_fast:
            super()._output_marshaled_frames(marshaled_frames)
            return
        self.send(b"".join(marshaled_frames))

    def _on_connection_workflow_done(self, conn_or_exc: object) -> None:
        # If an attempt is abandoned late, pika 1.4.4 passes the class of the exception, and then fails on it.
        super()._on_connection_workflow_done(conn_or_exc() if isinstance(conn_or_exc, type) else conn_or_exc)

    def _flush(self) -> None:
        self._is_due = False
        self._many = _MANY
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._outbox:
            self._write_out()

    def _write_out(self) -> None:
        self.frames_sent += len(self._outbox)
        data = b"".join([part if isinstance(part, bytes) else part.frames() for part in self._outbox])
        self._outbox.clear()
        if self._transport is not None:
            self.bytes_sent += len(data)
            if self._shortcut is not None:
                data = self._shortcut.send(data)
            if data:
                self._transport.write(data)
