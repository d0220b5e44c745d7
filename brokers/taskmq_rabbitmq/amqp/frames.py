"""Frames of the hot path, read from and written to bytes without objects in between. Pure.

It covers the AMQP 0-9-1 frames that a task queue needs per message: `basic.deliver` with its content, the broker's
`basic.ack` and `basic.nack` (confirms), `basic.publish` with its content, and `basic.ack` and `basic.nack` of
deliveries. Every other frame goes to the client library, in order and unchanged. A frame is

    type (1 byte)  channel (2)  size (4)  payload (size)  0xCE

A delivery is a method frame, a header frame and body frames of one channel. Frames of other channels may be between
them, and reads of the socket may end anywhere.
"""

import struct
from collections.abc import Callable
from typing import Final

from taskmq_rabbitmq.amqp.properties import Content, WireError, decode_text

_END: Final = b"\xce"
_END_BYTE: Final = 0xCE
_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_HEARTBEAT: Final = 8
_KINDS: Final = (_METHOD, _HEADER, _BODY, _HEARTBEAT)
_FRAME_MAX: Final = 2**17
_DELIVER: Final = 0x003C003C
_CONFIRM_ACK: Final = 0x003C0050
_CONFIRM_NACK: Final = 0x003C0078

_frame = struct.Struct(">BHI")
_tag_and_flag = struct.Struct(">QB")
_size_and_flags = struct.Struct(">QH")
_unpack_frame: Final = _frame.unpack_from
_unpack_tag_and_flag: Final = _tag_and_flag.unpack_from
_unpack_frame_and_method: Final = struct.Struct(">BHII").unpack_from
_unpack_header: Final = struct.Struct(">BHIHHQH").unpack_from
_settle = struct.Struct(">BHIIQBB")
_publish_head = struct.Struct(">BHIIH")
_header_head = struct.Struct(">BHIHHQ")
_unpack_word: Final = struct.Struct(">I").unpack_from

_ACK_METHOD: Final = 0x003C0050
_NACK_METHOD: Final = 0x003C0078
_PUBLISH_METHOD: Final = 0x003C0028
_REQUEUE: Final = 0b10
# Whether an unroutable message is returned; the second byte ends the frame.
MANDATORY: Final = b"\x01\xce"
NOT_MANDATORY: Final = b"\x00\xce"


class _Partial:
    """A delivery with incomplete content.

    Attributes:
        method: the payload of its `basic.deliver`, if the routing key is wanted.
    """

    __slots__ = ("body", "content", "left", "method", "redelivered", "tag")

    def __init__(self, tag: int, flags: int, method: bytes | None = None) -> None:
        self.tag = tag
        self.method = method
        self.redelivered = bool(flags & 1)
        self.content: Content | None = None
        self.left = 0
        self.body: list[bytes] = []


OnDelivery = Callable[[int, bool, Content, bytes], None]
OnConfirm = Callable[[int, bool, bool], None]


class FrameReader:
    """Reads received bytes and passes each frame to its handler.

    Args:
        other: called with every other frame, whole, in the order of arrival.

    Attributes:
        frame_max: the limit negotiated with the broker.
    """

    __slots__ = ("_addressed", "_confirms", "_feeds", "_other", "_partial", "_rest", "frame_max")

    def __init__(self, other: Callable[[bytes], None]) -> None:
        self._other = other
        self.frame_max = _FRAME_MAX
        self._rest = b""
        self._feeds: dict[int, OnDelivery] = {}
        self._addressed: dict[int, OnDelivery] = {}
        self._confirms: dict[int, OnConfirm] = {}
        self._partial: dict[int, _Partial] = {}

    def deliver_to(self, channel: int, call: OnDelivery) -> None:
        """Pass deliveries of `channel` to `call(tag, redelivered, content, body)`."""
        self._feeds[channel] = call

    def deliver_addressed_to(self, channel: int, call: OnDelivery) -> None:
        """Pass deliveries with the routing key in `content`, for readers of letters, so that others do not pay."""
        self._addressed[channel] = call

    def confirm_to(self, channel: int, call: OnConfirm) -> None:
        """Pass confirms of `channel` to `call(tag, multiple, is_nack)`."""
        self._confirms[channel] = call

    def forget(self, channel: int) -> None:
        """Pass all frames of `channel` to the library; incomplete deliveries are dropped."""
        self._feeds.pop(channel, None)
        self._addressed.pop(channel, None)
        self._confirms.pop(channel, None)
        self._partial.pop(channel, None)

    def feed(self, data: bytes) -> None:
        """Read the next bytes.

        Raises:
            WireError: they are not frames.
        """
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        feeds = self._feeds
        try:
            while end - at >= 12:
                kind, channel, size, method = _unpack_frame_and_method(data, at)
                after = at + 8 + size
                if after > end:
                    break
                if data[after - 1] != _END_BYTE:
                    raise WireError(f"a frame of type {kind} on channel {channel} has no end marker")
                start, at = at, after
                if kind != _METHOD or method != _DELIVER or (feed := feeds.get(channel)) is None:
                    self._take(kind, channel, data[start:after])
                    continue
                tag, flags = _unpack_tag_and_flag(data, start + 12 + data[start + 11])
                # The content nearly always follows immediately and completely, in one frame of each kind.
                if end - after >= 21:
                    kind, header_channel, size, _, _, body_size, property_flags = _unpack_header(data, after)
                    body_at = after + 8 + size
                    body_end = body_at + 8 + body_size
                    if (
                        body_end <= end
                        and body_size
                        and kind == _HEADER
                        and header_channel == channel
                        and data[body_at - 1] == _END_BYTE
                        and _unpack_frame(data, body_at) == (_BODY, channel, body_size)
                        and data[body_end - 1] == _END_BYTE
                    ):
                        at = body_end
                        content = Content(property_flags, data[after + 21 : body_at - 1])
                        feed(tag, flags & 1 == 1, content, data[body_at + 7 : body_end - 1])
                        continue
                self._partial[channel] = _Partial(tag, flags)
            at = self._short_frames(data, at)
        except struct.error as error:
            raise WireError(f"a frame is truncated: {error}") from error
        finally:
            self._rest = data[at:]

    def _short_frames(self, data: bytes, at: int) -> int:
        """Read frames shorter than the start of a method; return the start of the first incomplete frame."""
        end = len(data)
        while end - at >= 8:
            kind, channel, size = _unpack_frame(data, at)
            after = at + 8 + size
            if after > end:
                self._check_beginning(kind, size)
                break
            if data[after - 1] != _END_BYTE:
                raise WireError(f"a frame of type {kind} on channel {channel} has no end marker")
            self._take(kind, channel, data[at:after])
            at = after
        return at

    def _take(self, kind: int, channel: int, frame: bytes) -> None:
        if kind == _METHOD:
            (method,) = _unpack_word(frame, 7)
            if channel in self._confirms and method in (_CONFIRM_ACK, _CONFIRM_NACK):
                tag, flags = _unpack_tag_and_flag(frame, 11)
                self._confirms[channel](tag, bool(flags & 1), method == _CONFIRM_NACK)
                return
            if method == _DELIVER and channel in self._addressed:
                tag, flags = _unpack_tag_and_flag(frame, 12 + frame[11])
                self._partial[channel] = _Partial(tag, flags, frame[7:-1])
                return
        elif channel in self._partial and kind in (_HEADER, _BODY):
            self._more(channel, kind, frame[7:-1])
            return
        self._other(frame)

    def _check_beginning(self, kind: int, size: int) -> None:
        # Otherwise it would wait for the rest of an invalid frame, for as long as its size claims.
        if size > 2 * self.frame_max or kind not in _KINDS:
            raise WireError(f"invalid frame header: type {kind}, size {size:,}")

    def _more(self, channel: int, kind: int, payload: bytes) -> None:
        delivery = self._partial[channel]
        if kind == _HEADER:
            delivery.left, flags = _size_and_flags.unpack_from(payload, 4)
            delivery.content = (
                Content(flags, payload[14:])
                if delivery.method is None
                else Content(flags, payload[14:], _routing_key(delivery.method))
            )
        else:
            delivery.body.append(payload)
            delivery.left -= len(payload)
        content = delivery.content
        if content is None or delivery.left < 0:
            raise WireError(f"channel {channel}: a body does not match its header")
        if delivery.left == 0:
            del self._partial[channel]
            call = self._feeds[channel] if delivery.method is None else self._addressed[channel]
            call(delivery.tag, delivery.redelivered, content, b"".join(delivery.body))


def _routing_key(deliver: bytes) -> str | None:
    # Class and method, consumer tag, delivery tag, redelivered, exchange, routing key.
    at = 5 + deliver[4] + 9
    at += 1 + deliver[at]
    return decode_text(deliver[at + 1 : at + 1 + deliver[at]])


def ack_frame(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Build `basic.ack` of a delivery, or of all up to it."""
    return _settle.pack(_METHOD, channel, 13, _ACK_METHOD, tag, multiple, 0xCE)


def nack_frame(channel: int, tag: int) -> bytes:
    """Build `basic.nack` of one delivery, back into its queue."""
    return _settle.pack(_METHOD, channel, 13, _NACK_METHOD, tag, _REQUEUE, 0xCE)


def publish_frames(
    channel: int,
    exchange: bytes,
    routing_key: bytes,
    properties: bytes,
    body: bytes,
    *,
    frame_max: int,
    bits: bytes = MANDATORY,
) -> bytes:
    """Build `basic.publish` with its content; `properties` are from `properties_bytes`.

    Args:
        channel: its number.
        exchange: its name.
        routing_key: at most 255 bytes.
        properties: flags and values.
        body: split into as many frames as needed.
        frame_max: as negotiated with the broker.
        bits: `MANDATORY` or `NOT_MANDATORY`.

    Raises:
        WireError: exchange or routing key are longer than 255 bytes, or the properties than a frame.
    """
    if len(exchange) > 255 or len(routing_key) > 255:
        raise WireError(f"a routing key of {len(routing_key)} bytes: at most 255")
    if len(properties) + 20 > frame_max:
        raise WireError(f"{len(properties):,} bytes of properties and headers: at most {frame_max - 20:,}")
    size = len(body)
    parts = [
        _publish_head.pack(_METHOD, channel, 9 + len(exchange) + len(routing_key), _PUBLISH_METHOD, 0),
        bytes((len(exchange),)),
        exchange,
        bytes((len(routing_key),)),
        routing_key,
        bits,
        _header_head.pack(_HEADER, channel, 12 + len(properties), 60, 0, size),
        properties,
        _END,
    ]
    room = frame_max - 8
    if size <= room:
        if size:
            parts += (_frame.pack(_BODY, channel, size), body, _END)
    else:
        for at in range(0, size, room):
            part = body[at : at + room]
            parts += (_frame.pack(_BODY, channel, len(part)), part, _END)
    return b"".join(parts)
