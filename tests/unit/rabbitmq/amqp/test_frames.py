"""taskmq's own reader and writer of frames, compared with pika's."""

import contextlib
import importlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.amqp.frames import NOT_MANDATORY, FrameReader, ack_frame, nack_frame, publish_frames
from taskmq_rabbitmq.amqp.properties import Content, WireError, fleeting_properties, properties_bytes
from taskmq_rabbitmq.amqp.received_properties import Incoming, headers_of

# Imported by name: pika has no type annotations.
pika_frame: Any = importlib.import_module("pika.frame")
spec: Any = importlib.import_module("pika.spec")

FRAME_MAX = 4096

text = st.text(max_size=60)
short = st.text(max_size=40)
headers = st.dictionaries(short, st.one_of(text, st.integers(-(2**63), 2**63 - 1)), max_size=5)


@dataclass(frozen=True)
class Message:
    channel: int
    tag: int
    redelivered: bool
    properties: Mapping[str, Any]
    body: bytes
    routing_key: str = "a.key"

    def frames(self) -> list[bytes]:
        deliver = spec.Basic.Deliver("a tag", self.tag, self.redelivered, "an exchange", self.routing_key)
        head = pika_frame.Header(self.channel, len(self.body), spec.BasicProperties(**self.properties))
        room = FRAME_MAX - 8
        bodies = [pika_frame.Body(self.channel, self.body[at : at + room]) for at in range(0, len(self.body), room)]
        return [each.marshal() for each in (pika_frame.Method(self.channel, deliver), head, *bodies)]


properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short,
        "content_encoding": short,
        "headers": headers,
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "correlation_id": short,
        "reply_to": short,
        "expiration": short,
        "message_id": short,
        "timestamp": st.integers(0, 2**40),
        "type": short,
        "user_id": short,
        "app_id": short,
    },
)
messages = st.builds(
    Message,
    channel=st.integers(1, 3),
    tag=st.integers(1, 2**63 - 1),
    redelivered=st.booleans(),
    properties=properties,
    body=st.one_of(st.binary(max_size=50), st.binary(min_size=4000, max_size=9000)),
)


class Sink:
    """Records the callbacks of a reader in order."""

    def __init__(self, feeds: set[int]) -> None:
        self.got: list[tuple[int, int, bool, Content, bytes]] = []
        self.confirms: list[tuple[int, bool, bool]] = []
        self.others: list[bytes] = []
        self.reader = FrameReader(self.others.append)
        for channel in feeds:
            self.reader.deliver_to(channel, partial(self._take, channel))

    def ask_for_keys(self, channels: set[int]) -> None:
        for channel in channels:
            self.reader.deliver_addressed_to(channel, partial(self._take, channel))

    def _take(self, channel: int, tag: int, redelivered: bool, content: Content, body: bytes) -> None:
        self.got.append((channel, tag, redelivered, content, body))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def interleave(messages: list[Message], order: list[int]) -> list[bytes]:
    """Interleave the frames of all messages; those of one channel stay in order."""
    lanes: dict[int, list[bytes]] = {}
    for message in messages:
        lanes.setdefault(message.channel, []).extend(message.frames())
    mixed: list[bytes] = []
    for pick in [*order, *range(10_000)]:
        waiting = [lane for lane in lanes.values() if lane]
        if not waiting:
            break
        mixed.append(waiting[pick % len(waiting)].pop(0))
    return mixed


@given(st.lists(messages, max_size=5), st.lists(st.integers(0, 50), max_size=20), st.lists(st.integers(0, 2**16)))
def test_deliveries_match_those_of_pika_however_frames_are_mixed_and_split(
    sent: list[Message], order: list[int], places: list[int]
) -> None:
    sink = Sink({1, 2, 3})

    for part in cut(b"".join(interleave(sent, order)), places):
        sink.reader.feed(part)

    assert sink.others == []
    for channel in (1, 2, 3):
        expected = [message for message in sent if message.channel == channel]
        got = [entry for entry in sink.got if entry[0] == channel]
        assert [(tag, again, body) for _, tag, again, _, body in got] == [
            (message.tag, message.redelivered, message.body) for message in expected
        ]
        for (_, _, _, content, _), message in zip(got, expected, strict=True):
            pikas = spec.BasicProperties()
            pikas.decode(b"".join(spec.BasicProperties(**message.properties).encode()))
            reference = Incoming(pikas)
            assert content.content_type == reference.content_type
            assert content.message_id == reference.message_id
            assert content.type == reference.type
            assert dict(headers_of(content)) == dict(headers_of(reference))


@given(st.lists(messages, max_size=5), st.lists(st.integers(0, 2**16)), st.lists(text, min_size=5, max_size=5))
def test_only_readers_that_ask_for_the_routing_key_get_it_with_deliveries(
    sent: list[Message], places: list[int], keys: list[str]
) -> None:
    sent = [replace(message, routing_key=key) for message, key in zip(sent, keys, strict=False)]
    sink = Sink({1, 2})
    sink.ask_for_keys({3})

    for part in cut(b"".join(interleave(sent, [])), places):
        sink.reader.feed(part)

    assert sink.others == []
    for channel in (1, 2, 3):
        expected = [message for message in sent if message.channel == channel]
        got = [entry for entry in sink.got if entry[0] == channel]
        assert [(tag, again, body) for _, tag, again, _, body in got] == [
            (message.tag, message.redelivered, message.body) for message in expected
        ]
        for (_, _, _, content, _), message in zip(got, expected, strict=True):
            assert content.routing_key == (message.routing_key if channel == 3 else None)
            assert content.message_id == message.properties.get("message_id")


def test_an_undecodable_routing_key_is_absent() -> None:
    (deliver, *rest) = Message(1, 7, False, {}, b"body", routing_key="kkkk").frames()
    sink = Sink(set())
    sink.ask_for_keys({1})

    sink.reader.feed(deliver.replace(b"kkkk", b"\xff\xfe\xff\xfe") + b"".join(rest))

    assert [(content.routing_key, body) for _, _, _, content, body in sink.got] == [(None, b"body")]


def test_headers_unreadable_for_pika_are_absent() -> None:
    # An instant after the year 9999: RabbitMQ can carry it and Python cannot.
    table = b"\x04whenT" + (2**62).to_bytes(8, "big")
    raw = len(table).to_bytes(4, "big") + table

    assert headers_of(Content(1 << 13, raw)) == {}


@given(st.lists(messages, max_size=4), st.lists(st.integers(0, 2**16)))
def test_unclaimed_channels_are_left_to_pika_byte_for_byte(sent: list[Message], places: list[int]) -> None:
    sink = Sink({1})
    frames = interleave(sent, [])

    for part in cut(b"".join(frames), places):
        sink.reader.feed(part)

    assert sink.others == [frame for frame in frames if frame[1:3] != b"\x00\x01"]
    assert len(sink.got) == sum(message.channel == 1 for message in sent)


@given(st.integers(1, 2**63 - 1), st.booleans(), st.booleans())
def test_confirms_are_read_on_their_channel_and_ignored_elsewhere(tag: int, multiple: bool, nack: bool) -> None:
    sink = Sink(set())
    sink.reader.confirm_to(7, lambda *confirm: sink.confirms.append(confirm))
    method = spec.Basic.Nack(tag, multiple) if nack else spec.Basic.Ack(tag, multiple)

    sink.reader.feed(pika_frame.Method(7, method).marshal())
    sink.reader.feed(pika_frame.Method(8, method).marshal())
    sink.reader.forget(7)
    sink.reader.feed(pika_frame.Method(7, method).marshal())

    assert sink.confirms == [(tag, multiple, nack)]
    assert len(sink.others) == 2


def test_a_channel_released_during_a_delivery_leaves_no_trace() -> None:
    sink = Sink({1})
    message = Message(1, 5, False, {}, b"x" * 5000)
    method, header, first, second = message.frames()

    sink.reader.feed(method + header + first)
    sink.reader.forget(1)
    sink.reader.feed(second)

    assert sink.got == []
    assert sink.others == [second]


def test_a_body_longer_than_its_header_announces_is_an_error() -> None:
    sink = Sink({1})
    method, header, _ = Message(1, 5, False, {}, b"abc").frames()

    with pytest.raises(WireError, match="channel 1"):
        sink.reader.feed(method + header + pika_frame.Body(1, b"abcdef").marshal())


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_garbage_is_passed_on_or_buffered_and_never_breaks_the_reader(data: bytes, places: list[int]) -> None:
    sink = Sink({1, 2, 3})

    with contextlib.suppress(WireError):
        for part in cut(data, places):
            sink.reader.feed(part)

    assert b"".join(sink.others) == data[: len(b"".join(sink.others))]


@pytest.mark.parametrize(
    "nonsense",
    [
        bytes(range(256)),
        b"\x01\x00\x01\xff\xff\xff\xff ",
        b"HTTP/1.1 400 Bad Request",
        b"\x04" + bytes(3) + b"\x09" * 8,
    ],
)
def test_an_invalid_frame_is_not_waited_for(nonsense: bytes) -> None:
    with pytest.raises(WireError, match="invalid frame header"):
        Sink({1}).reader.feed(nonsense)


@given(messages, st.data())
def test_a_frame_with_a_wrong_end_is_an_error_and_not_a_delivery(message: Message, data: st.DataObject) -> None:
    frames = message.frames()
    broken = data.draw(st.integers(0, len(frames) - 1))
    frames[broken] = frames[broken][:-1] + b"\x00"
    sink = Sink({message.channel})

    with pytest.raises(WireError, match="has no end marker"):
        sink.reader.feed(b"".join(frames))

    assert sink.got == []


@given(
    headers=headers,
    texts=st.tuples(short, short, short, short, short),
    encoding=st.one_of(st.none(), short),
    timestamp=st.one_of(st.none(), st.integers(0, 2**62)),
    priority=st.one_of(st.none(), st.integers(0, 9)),
    body=st.one_of(st.binary(max_size=50), st.binary(min_size=4000, max_size=9000)),
    exchange=short,
    key=short,
)
def test_pika_reads_published_messages_as_intended(
    headers: dict[str, str | int],
    texts: tuple[str, str, str, str, str],
    encoding: str | None,
    timestamp: int | None,
    priority: int | None,
    body: bytes,
    exchange: str,
    key: str,
) -> None:
    content_type, correlation_id, message_id, kind, app_id = texts
    encoded = properties_bytes(
        content_type=content_type,
        content_encoding=encoding,
        headers=headers,
        correlation_id=correlation_id,
        message_id=message_id,
        timestamp=timestamp,
        kind=kind,
        app_id=app_id,
        priority=priority,
    )

    data = publish_frames(9, exchange.encode(), key.encode(), encoded, body, frame_max=FRAME_MAX)

    method, header, *bodies = decode_frames(data)
    assert (method.method.exchange, method.method.routing_key) == (exchange, key)
    assert (method.method.mandatory, method.method.immediate) == (True, False)
    assert header.body_size == len(body)
    assert b"".join(each.fragment for each in bodies) == body
    found = header.properties
    assert (found.content_type, found.content_encoding, found.delivery_mode) == (content_type, encoding, 2)
    assert (found.correlation_id, found.message_id) == (correlation_id, message_id)
    assert (found.timestamp, found.type, found.app_id) == (timestamp, kind, app_id)
    assert found.priority == priority
    assert dict(found.headers or {}) == headers


def test_an_announcement_is_neither_mandatory_nor_persistent() -> None:
    properties = fleeting_properties(content_type="application/json", app_id="taskmq")
    data = publish_frames(9, b"events", b"job.dead.q", properties, b"{}", frame_max=FRAME_MAX, bits=NOT_MANDATORY)

    method, header, body = decode_frames(data)
    assert (method.method.exchange, method.method.routing_key) == ("events", "job.dead.q")
    assert (method.method.mandatory, method.method.immediate) == (False, False)
    found = header.properties
    assert (found.content_type, found.app_id, found.delivery_mode) == ("application/json", "taskmq", 1)
    assert body.fragment == b"{}"


def decode_frames(data: bytes) -> list[Any]:
    frames: list[Any] = []
    while data:
        used, frame = pika_frame.decode_frame(data)
        assert used <= FRAME_MAX
        frames.append(frame)
        data = data[used:]
    return frames


@given(st.integers(1, 2**16 - 1), st.integers(0, 2**63 - 1), st.booleans())
def test_settling_writes_the_same_bytes_as_pika(channel: int, tag: int, multiple: bool) -> None:
    assert (
        ack_frame(channel, tag, multiple=multiple)
        == pika_frame.Method(channel, spec.Basic.Ack(tag, multiple)).marshal()
    )
    assert nack_frame(channel, tag) == pika_frame.Method(channel, spec.Basic.Nack(tag, False, True)).marshal()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"message_id": "ä" * 128}, "256 bytes"),
        ({"headers": {"n" * 256: 1}}, "256 bytes"),
        ({"headers": {"n": 2**63}}, "64 bits"),
        ({"kind": "\ud800"}, "not valid UTF-8"),
    ],
)
def test_a_value_unsuitable_for_a_frame_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    given_: dict[str, Any] = {
        "content_type": "",
        "content_encoding": None,
        "headers": {},
        "correlation_id": "",
        "message_id": "",
        "timestamp": None,
        "kind": "",
        "app_id": "",
    }

    with pytest.raises(WireError, match=words):
        properties_bytes(**{**given_, **change})


def test_overlong_keys_and_properties_are_refused() -> None:
    with pytest.raises(WireError, match="routing key"):
        publish_frames(1, b"", b"k" * 256, b"", b"", frame_max=FRAME_MAX)
    with pytest.raises(WireError, match="properties"):
        publish_frames(1, b"", b"", b"p" * FRAME_MAX, b"", frame_max=FRAME_MAX)
