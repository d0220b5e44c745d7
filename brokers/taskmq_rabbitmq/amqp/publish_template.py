"""Shared frames of the messages of one task to one queue, built once. Pure.

Most messages differ only in their number, ids, time and body. Their frames are four pieces of ready bytes with these
values between them. Other messages (with further headers, an id of another length, a body of several frames) use
`frames.publish_frames`, which produces the same bytes.
"""

import struct
from collections.abc import Mapping
from typing import Final

from taskmq.contracts.broker import HeaderValue, Outgoing
from taskmq.model.envelope import JSON
from taskmq_rabbitmq.amqp.frames import publish_frames
from taskmq_rabbitmq.amqp.properties import properties_bytes

ID_LENGTH: Final = 36
"""Length of a job's id that taskmq generates."""
APP_ID: Final = "taskmq"
"""Name under which taskmq publishes."""

TemplateKey = tuple[object, ...]
"""Queue, task, content type, priority, and each label."""

_ID: Final = "0" * ID_LENGTH
_LONG_BYTES: Final = 8
_BODY: Final = 3
_END_BYTES: Final = 1
_ID_SIZE: Final = bytes((ID_LENGTH,))


class PublishTemplate:
    """Frames of one kind of message on one channel.

    Args:
        channel: its number.
        key: their routing key.
        content_type: of the body.
        content_encoding: of the body.
        sequence: name of the header for the message's number.
        labels: further headers.
        kind: the task.
        app_id: the publisher.
        priority: the broker's own.
        frame_max: as negotiated with the broker.

    Attributes:
        exchange: as above.

    Raises:
        WireError: a value cannot be encoded.
    """

    __slots__ = ("_between", "_limit", "_middle", "_pack", "_start", "_tail", "exchange")

    def __init__(
        self,
        channel: int,
        exchange: str,
        key: str,
        *,
        content_type: str,
        content_encoding: str | None,
        sequence: str,
        labels: Mapping[str, HeaderValue],
        kind: str,
        app_id: str,
        priority: int | None,
        frame_max: int,
    ) -> None:
        self.exchange = exchange
        properties = properties_bytes(
            content_type=content_type,
            content_encoding=content_encoding,
            headers={sequence: 0, **labels},
            correlation_id=_ID,
            message_id=_ID,
            timestamp=0,
            kind=kind,
            app_id=app_id,
            priority=priority,
        )
        frames = publish_frames(channel, exchange.encode(), key.encode(), properties, b"", frame_max=frame_max)
        properties_at = len(frames) - _END_BYTES - len(properties)
        size_at = properties_at - _LONG_BYTES
        # Flags, content type and encoding, the table's size, and its first field's name and type.
        encoding_bytes = 0 if content_encoding is None else 1 + len(content_encoding.encode())
        table_at = properties_at + 2 + 1 + len(content_type.encode()) + encoding_bytes
        number_at = table_at + 4 + len(sequence.encode()) + 2
        # The labels, delivery mode, priority, and the first id's length.
        after = table_at + 4 + int.from_bytes(frames[table_at : table_at + 4])
        first_id_at = after + 1 + (priority is not None) + 1
        time_at = first_id_at + ID_LENGTH + 1 + ID_LENGTH
        self._start = frames[:size_at]
        self._middle = frames[properties_at:number_at]
        self._between = frames[number_at + _LONG_BYTES : first_id_at]
        self._tail = frames[time_at + _LONG_BYTES :] + struct.pack(">BH", _BODY, channel)
        start, middle, between, tail = map(len, (self._start, self._middle, self._between, self._tail))
        self._pack = struct.Struct(f">{start}sQ{middle}sq{between}s{ID_LENGTH}ss{ID_LENGTH}sq{tail}sI").pack
        self._limit = frame_max - 8

    def frames(self, sequence: int, root: bytes, job_id: bytes, seconds: int, body: bytes) -> bytes | None:
        """Build the frames of one message; None if they need `publish_frames`.

        Args:
            sequence: the message's number.
            root: the id of the job that it descends from.
            job_id: its own id.
            seconds: time of its first publish, since the epoch.
            body: the encoded envelope.

        Raises:
            struct.error: a number does not fit into 64 bits.
        """
        size = len(body)
        if not 0 < size <= self._limit or len(job_id) != ID_LENGTH or len(root) != ID_LENGTH:
            return None
        head = self._pack(
            self._start,
            size,
            self._middle,
            sequence,
            self._between,
            root,
            _ID_SIZE,
            job_id,
            seconds,
            self._tail,
            size,
        )
        return b"%b%b\xce" % (head, body)


def template_for(
    message: Outgoing, *, channel: int, route: tuple[str, str], sequence: str, kind: str, frame_max: int
) -> PublishTemplate:
    """Build the template of the messages that have the queue, task and labels of this one.

    Args:
        channel: number of the channel.
        route: exchange and routing key of the queue.
        sequence: name of the header for a message's number.
        kind: the task, shortened if needed.
        frame_max: as negotiated with the broker.

    Raises:
        WireError: a value cannot be encoded.
    """
    return PublishTemplate(
        channel,
        *route,
        content_type=message.content_type,
        content_encoding="utf-8" if message.content_type == JSON else None,
        sequence=sequence,
        labels=message.headers,
        kind=kind,
        app_id=APP_ID,
        priority=message.priority,
        frame_max=frame_max,
    )
