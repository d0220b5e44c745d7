import contextlib
import json
import re
import uuid
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import EncodeError, InvalidOption, MalformedMessage
from taskmq.model.envelope import (
    JSON,
    MSGPACK,
    VERSION,
    Envelope,
    amend,
    check_task_name,
    decode_envelope,
    encode_envelope,
    new_job_id,
    submitted_at,
)

_TYPES = [JSON, MSGPACK]
_FIELDS = {field.name for field in msgspec.structs.fields(Envelope)}
_LAST_INSTANT = 253_402_300_799_999

_words = st.text(max_size=20)
_instants = st.none() | st.integers(0, _LAST_INSTANT)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | _words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def _pack(value: object, content_type: str) -> bytes:
    return msgspec.json.encode(value) if content_type == JSON else msgspec.msgpack.encode(value)


def _raw_fields(body: bytes, content_type: str) -> dict[str, bytes]:
    decode = msgspec.json.decode if content_type == JSON else msgspec.msgpack.decode
    return {name: bytes(raw) for name, raw in decode(body, type=dict[str, msgspec.Raw]).items()}


@st.composite
def _envelopes(draw: st.DrawFn, content_type: str) -> Envelope:
    return Envelope(
        v=draw(st.sampled_from([0, VERSION])),
        id=draw(_words),
        task=draw(_words),
        args=msgspec.Raw(_pack(draw(st.lists(_plain, max_size=3)), content_type)),
        kwargs=msgspec.Raw(_pack(draw(st.dictionaries(_words, _plain, max_size=3)), content_type)),
        attempt=draw(st.integers(1, 2**31 - 1)),
        enqueued=draw(_instants),
        eta=draw(_instants),
        expires=draw(_instants),
        root=draw(st.none() | _words),
        parent=draw(st.none() | _words),
        key=draw(st.none() | _words),
        tenant=draw(st.none() | _words),
        priority=draw(st.none() | st.integers(0, 9)),
        trace=draw(st.none() | _words),
        meta=draw(st.none() | st.dictionaries(_words, _words, max_size=3)),
    )


def _values(envelope: Envelope) -> dict[str, object]:
    values = msgspec.structs.asdict(envelope)
    return {name: bytes(value) if isinstance(value, msgspec.Raw) else value for name, value in values.items()}


@pytest.mark.parametrize("content_type", _TYPES)
@given(st.data())
def test_every_field_survives_the_round_trip(content_type: str, data: st.DataObject) -> None:
    envelope = data.draw(_envelopes(content_type))

    decoded = decode_envelope(encode_envelope(envelope, content_type), content_type)

    assert _values(decoded) == _values(envelope)


@pytest.mark.parametrize("content_type", _TYPES)
def test_fields_with_their_default_are_not_sent(content_type: str) -> None:
    body = encode_envelope(Envelope(v=VERSION, task="a"), content_type)

    assert set(_raw_fields(body, content_type)) == {"v", "task"}


def test_the_smallest_handwritten_task_has_all_defaults() -> None:
    envelope = decode_envelope(b'{"task": "shop.resize", "args": [7]}')

    assert (envelope.v, envelope.id, envelope.task, envelope.attempt) == (0, "", "shop.resize", 1)
    assert (bytes(envelope.args), bytes(envelope.kwargs)) == (b"[7]", b"{}")
    assert [envelope.eta, envelope.expires, envelope.enqueued, envelope.priority, envelope.meta] == [None] * 5


def test_the_fields_are_those_of_the_public_wire_format() -> None:
    call = {"v", "id", "task", "args", "kwargs", "attempt"}
    times = {"enqueued", "eta", "expires"}
    rest = {
        "root",
        "parent",
        "key",
        "order_key",
        "step_of",
        "tenant",
        "priority",
        "trace",
        "meta",
        "store",
        "blob",
        "parts",
        "preemptible",
        "run",
        "earlier",
        "limits",
    }

    assert call | times | rest == _FIELDS


@pytest.mark.parametrize("content_type", _TYPES)
def test_an_invitation_names_a_queue_for_reports(content_type: str) -> None:
    def decode(reports: str) -> Envelope:
        store = {"id": "0190", "token": 1, "reports": reports}
        return decode_envelope(_pack({"task": "a", "store": store}, content_type), content_type)

    assert decode("taskmq.reports.shop.0").store is not None
    with pytest.raises(MalformedMessage, match=r"\$\.store\.reports"):
        decode("work")
    with pytest.raises(MalformedMessage) as refusal:
        decode("w" * 10_000)
    # Parked messages and logs contain the error.
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("content_type", [JSON, None, "", "application/json; charset=utf-8", "application/json;x"])
def test_a_missing_content_type_means_json(content_type: str | None) -> None:
    assert decode_envelope(b'{"task":"a"}', content_type).task == "a"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-python-serialize", "APPLICATION", "json"])
def test_an_unknown_content_type_is_malformed_and_cannot_be_encoded(content_type: str) -> None:
    with pytest.raises(MalformedMessage, match=re.escape(repr(content_type))):
        decode_envelope(b'{"task":"a"}', content_type)
    with pytest.raises(EncodeError, match=re.escape(repr(content_type))):
        encode_envelope(Envelope(task="a"), content_type)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize(
    "envelope",
    [Envelope(task="\ud800"), Envelope(task="a", meta={"\udfff": "x"}), Envelope(task="a", key="k\ud8ff")],
    ids=["task", "meta", "key"],
)
def test_a_text_with_surrogates_cannot_be_encoded(envelope: Envelope, content_type: str) -> None:
    with pytest.raises(EncodeError):
        encode_envelope(envelope, content_type)


def test_a_number_too_large_for_msgpack_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError):
        encode_envelope(Envelope(task="a", attempt=2**64), MSGPACK)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize(
    ("version", "is_known"), [(version, version in range(4)) for version in (-1, 0, 1, 2, 3, 4, 10**18)]
)
def test_only_versions_one_to_three_are_read(version: int, *, is_known: bool, content_type: str) -> None:
    body = _pack({"v": version, "task": "a"}, content_type)

    if is_known:
        assert decode_envelope(body, content_type).v == version
    else:
        with pytest.raises(MalformedMessage, match=f"version {version}"):
            decode_envelope(body, content_type)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize("attempt", [0, -1, 2**31, 2**63])
def test_an_invalid_attempt_is_malformed(attempt: int, content_type: str) -> None:
    with pytest.raises(MalformedMessage, match="attempt"):
        decode_envelope(_pack({"task": "a", "attempt": attempt}, content_type), content_type)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize("name", ["enqueued", "eta", "expires"])
@pytest.mark.parametrize("instant", [-1, _LAST_INSTANT + 1, 2**63])
def test_an_instant_out_of_range_is_malformed(name: str, instant: int, content_type: str) -> None:
    with pytest.raises(MalformedMessage, match=name):
        decode_envelope(_pack({"task": "a", name: instant}, content_type), content_type)


_HUGE = b"9" * 5_000
_DEEP = 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"null", b"5", b'"a"', b"[]", b"[1]", b"true", b"{}", b'{"task":5}', b'{"task":null}'),
        *(b'{"task":"a"', b'{"task":"a"}x', b'{"task":"a"}{}', b'{"task":"a",}', b"{'task':'a'}", b'{task:"a"}'),
        *(b'{"task":"a","v":"1"}', b'{"task":"a","v":1.0}', b'{"task":"a","v":true}', b'{"task":"a","v":null}'),
        *(b'{"task":"a","attempt":1.5}', b'{"task":"a","attempt":"1"}', b'{"task":"a","attempt":false}'),
        *(
            b'{"task":"a","id":7}',
            b'{"task":"a","eta":"now"}',
            b'{"task":"a","eta":1e400}',
            b'{"task":"a","eta":NaN}',
        ),
        *(b'{"task":"a","meta":{"x":1}}', b'{"task":"a","meta":[]}', b'{"task":"a","priority":"high"}'),
        *(b'{"task":"\xff"}', b"\xff\xfe{", b"\xef\xbb\xbf{}", b'{"task":"\\ud800"}', b'{"task":"a","x":"\\ud800"}'),
        *(b'{"task":"a","attempt":' + _HUGE + b"}", b'{"task":"a","eta":-' + _HUGE + b"}"),
        b'{"task":"a","args":' + b"[" * _DEEP + b"]" * _DEEP + b"}",
        b'{"task":"a","unknown":' + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP + b"}",
        *(b"[" * _DEEP, b'{"a":' * _DEEP, b'{"task":"a","args":' + b"[" * _DEEP),
    ],
    ids=lambda body: ascii(body[:40]),
)
def test_json_that_is_not_a_task_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_envelope(body)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xc0", b"\x05", b"\x90", b"\x80", b"\xc1", b"\x81", b"\x81\xa4task", b"\x81\xa4task\x05"),
        *(b"\x81\xa4task\xa1\xff", b"\x81\x01\xa1a", b"\x81\xa4task\xa1a\x00"),
        b"\x81\xa4task\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x82\xa4task\xa1a\xa4args" + b"\x91" * _DEEP + b"\xc0",
        b"\x82\xa4task\xa1a\xa1x" + b"\x81\xa1a" * _DEEP + b"\xc0",
        b"\x91" * _DEEP,
    ],
    ids=lambda body: ascii(body[:20]),
)
def test_msgpack_that_is_not_a_task_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_envelope(body, MSGPACK)


def test_both_parsers_use_the_last_value_of_a_repeated_field() -> None:
    body = b'{"task":"a","attempt":7,"task":"b","attempt":2}'

    amended = decode_envelope(amend(body, JSON, {"key": "k"}))

    assert (decode_envelope(body).task, decode_envelope(body).attempt) == ("b", 2)
    assert (amended.task, amended.attempt, amended.key) == ("b", 2, "k")


def test_arguments_are_not_decoded() -> None:
    envelope = decode_envelope(b'{"task":"a","args":"no array","kwargs":12345678901234567890123}')

    assert bytes(envelope.args) == b'"no array"'


_bodies = (
    st.binary(max_size=200)
    | _plain.map(msgspec.json.encode)
    | _plain.map(msgspec.msgpack.encode)
    | st.text(max_size=80).map(lambda text: b'{"task":"a",' + text.encode(errors="replace"))
    | st.dictionaries(st.sampled_from([*_FIELDS, "more"]), _plain, max_size=6).map(msgspec.json.encode)
    | st.dictionaries(st.sampled_from([*_FIELDS, "more"]), _plain, max_size=6).map(msgspec.msgpack.encode)
)


@given(_bodies, st.sampled_from([JSON, MSGPACK, None, "text/plain"]))
def test_any_bytes_are_an_envelope_or_malformed(body: bytes, content_type: str | None) -> None:
    try:
        envelope = decode_envelope(body, content_type)
    except MalformedMessage:
        return

    # Every readable envelope can be sent again.
    amended = amend(body, content_type, {"attempt": envelope.attempt + 1, "eta": 5, "key": None})
    if envelope.attempt < 2**31 - 1:
        assert decode_envelope(amended, content_type).attempt == envelope.attempt + 1


@given(st.data())
def test_a_body_with_a_changed_byte_is_an_envelope_or_malformed(data: st.DataObject) -> None:
    content_type = data.draw(st.sampled_from(_TYPES))
    body = bytearray(encode_envelope(data.draw(_envelopes(content_type)), content_type))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(MalformedMessage):
        assert isinstance(decode_envelope(bytes(body), content_type), Envelope)


@pytest.mark.parametrize("content_type", _TYPES)
@given(st.data())
def test_amending_keeps_every_other_field_byte_for_byte(content_type: str, data: st.DataObject) -> None:
    known = _raw_fields(encode_envelope(data.draw(_envelopes(content_type)), content_type), content_type)
    unknown = data.draw(st.dictionaries(_words.filter(lambda name: name not in _FIELDS), _plain, max_size=3))
    fields = {name: msgspec.Raw(raw) for name, raw in known.items()}
    fields |= {name: msgspec.Raw(_pack(value, content_type)) for name, value in unknown.items()}
    body = _pack(fields, content_type)

    amended = _raw_fields(amend(body, content_type, {"attempt": 77, "eta": None, "key": "k"}), content_type)

    changed = {"attempt": _pack(77, content_type), "key": _pack("k", content_type)}
    before = {name: raw for name, raw in _raw_fields(body, content_type).items() if name != "eta"}
    assert amended == before | changed


@given(st.data())
def test_amending_keeps_the_formatting_of_json(data: st.DataObject) -> None:
    value = data.draw(_plain)
    written = json.dumps(
        value, indent=data.draw(st.none() | st.integers(0, 3)), ensure_ascii=data.draw(st.booleans())
    ).encode()

    amended = amend(b'{ "x" :' + written + b' , "task":"a" }', JSON, {"attempt": 2})

    assert _raw_fields(amended, JSON)["x"] == written


def test_an_empty_amendment_changes_nothing() -> None:
    body = b'{"task":"a","x":[1, 2.50e1,"\\u00e9"],"args":[ ]}'

    assert amend(body, JSON, {}) == body
    assert amend(body, None, {}) == body


def test_amending_removes_fields_and_adds_new_ones() -> None:
    amended = amend(b'{"task":"a","eta":5,"x":1}', JSON, {"eta": None, "missing": None, "attempt": 2})

    assert json.loads(amended) == {"task": "a", "x": 1, "attempt": 2}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        *[(b"[1]", JSON), (b"", JSON), (b"\xff", JSON), (b'{"a":' * _DEEP, JSON), (b'{"\xff":1}', JSON)],
        *[(b"[" * _DEEP, None), (b"\x91\x01", MSGPACK), (b"", MSGPACK), (b"\x81\xa1\xff\x01", MSGPACK)],
    ],
    ids=lambda value: ascii(value)[:25],
)
def test_anything_but_an_object_cannot_be_amended(body: bytes, content_type: str | None) -> None:
    with pytest.raises(MalformedMessage):
        amend(body, content_type, {"attempt": 2})


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize("value", ["\ud800", object(), {"\ud800": 1}], ids=["text", "object", "name"])
def test_an_unencodable_new_value_names_its_field(value: object, content_type: str) -> None:
    with pytest.raises(EncodeError, match="attempt"):
        amend(_pack({"task": "a"}, content_type), content_type, {"attempt": value})


@pytest.mark.parametrize("name", ["a", "shop.resize", "A-z_0:9.x", "a" * 128])
def test_a_valid_task_name_is_unchanged(name: str) -> None:
    assert check_task_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "größe", "a/b", "a" * 129, "a\x00", "\ud800", "<lambda>"], ids=ascii
)
def test_an_invalid_task_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="task name"):
        check_task_name(name)


_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_stamps = st.integers(0, 2**48 - 1)


@given(_stamps, st.binary(min_size=10, max_size=16))
def test_a_job_id_is_a_version_7_uuid_with_its_time_in_front(now_ms: int, random: bytes) -> None:
    text = new_job_id(now_ms, random)

    assert _UUID7.fullmatch(text)
    assert (uuid.UUID(text).version, uuid.UUID(text).variant) == (7, uuid.RFC_4122)
    assert submitted_at(text) == now_ms


@given(_stamps, _stamps, st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_job_ids_sort_by_their_time(one: int, other: int, random: bytes, other_random: bytes) -> None:
    ids = [new_job_id(one, random), new_job_id(other, other_random)]

    if one != other:
        assert (ids[0] < ids[1]) is (one < other)


@given(_stamps, st.sets(st.binary(min_size=10, max_size=10), min_size=2, max_size=2))
def test_job_ids_of_one_instant_differ_by_all_74_random_bits(now_ms: int, randoms: set[bytes]) -> None:
    def random_bits(random: bytes) -> bytes:
        return bytes([random[0] & 0x0F, random[1], random[2] & 0x3F]) + random[3:]

    one, other = randoms

    assert (new_job_id(now_ms, one) == new_job_id(now_ms, other)) is (random_bits(one) == random_bits(other))


def test_an_envelope_cannot_be_changed() -> None:
    envelope = cast("Any", Envelope(task="a"))

    with pytest.raises(AttributeError):
        envelope.attempt = 2
