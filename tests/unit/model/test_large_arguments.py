"""Bodies that refer to their arguments."""

from typing import Any

import msgspec
import pytest

from taskmq.errors import InvalidArguments, MalformedMessage
from taskmq.model.envelope import (
    IN_PARTS,
    JSON,
    MSGPACK,
    REFERRING,
    BlobReference,
    KeptPart,
    PartPath,
    decode_envelope,
    encode_envelope,
)
from taskmq.model.large_arguments import arguments_in, fill_arguments, put_back, refer

_BLOB = BlobReference(name="2027010100/x", size=7, sha256="00")
_TYPES = (JSON, MSGPACK, None)


def _pack(content_type: str | None, value: object) -> bytes:
    return msgspec.msgpack.encode(value) if content_type == MSGPACK else msgspec.json.encode(value)


def _unpack(content_type: str | None, data: bytes) -> Any:
    return msgspec.msgpack.decode(data) if content_type == MSGPACK else msgspec.json.decode(data)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize(
    "call", [{"args": [1, "ä"], "kwargs": {"k": None}}, {"args": [1]}, {"kwargs": {"k": 1.5}}, {}]
)
def test_removed_arguments_are_restored_byte_for_byte(content_type: str | None, call: dict[str, Any]) -> None:
    body = _pack(content_type, {"v": 1, "id": "j", "task": "t", "unknown": [7], **call})

    light = refer(body, content_type, _BLOB)
    envelope = decode_envelope(light, content_type)
    whole = put_back(envelope, arguments_in(body, content_type), content_type)

    fields = _unpack(content_type, light)
    assert fields.keys() == {"v", "id", "task", "unknown", "blob"}
    assert (fields["v"], fields["unknown"], envelope.blob) == (REFERRING, [7], _BLOB)
    assert whole.blob is None
    assert _unpack(content_type, bytes(whole.args)) == call.get("args", [])
    assert _unpack(content_type, bytes(whole.kwargs)) == call.get("kwargs", {})


@pytest.mark.parametrize("content_type", _TYPES)
def test_a_body_that_is_not_an_object_has_no_arguments(content_type: str | None) -> None:
    with pytest.raises(MalformedMessage, match="the body is not a task"):
        arguments_in(_pack(content_type, [1]), content_type)


@pytest.mark.parametrize("content_type", _TYPES)
@pytest.mark.parametrize("kept", [b"", b"{", b"[[]]"])
def test_anything_but_arguments_is_refused_with_the_name_of_the_job(content_type: str | None, kept: bytes) -> None:
    envelope = decode_envelope(
        refer(_pack(content_type, {"id": "j", "task": "t"}), content_type, _BLOB), content_type
    )
    with pytest.raises(InvalidArguments, match="cannot decode the arguments that job j refers to"):
        put_back(envelope, kept, content_type)


def _lacking(*at: PartPath) -> bytes:
    parts = [{"at": each, "blob": _BLOB} for each in at]
    call = {"args": [1, None], "kwargs": {"k": {"deep": None}}}
    return _pack(JSON, {"v": IN_PARTS, "id": "j", "task": "t", "parts": parts, **call})


def test_parts_are_put_where_their_paths_lead() -> None:
    envelope = decode_envelope(_lacking(("args", 1), ("kwargs", "k", "deep")))

    whole = fill_arguments(envelope, [b"[2]", b'"x"'])

    assert envelope.parts == (KeptPart(("args", 1), _BLOB), KeptPart(("kwargs", "k", "deep"), _BLOB))
    assert decode_envelope(encode_envelope(envelope)).parts == envelope.parts
    assert (envelope.has_references, whole.has_references) == (True, False)
    assert (bytes(whole.args), bytes(whole.kwargs)) == (b"[1,[2]]", b'{"k":{"deep":"x"}}')


@pytest.mark.parametrize("at", [(), ("other",), ("args", 2), ("kwargs", "k", "deep", 0)])
def test_a_part_without_a_place_is_refused_with_the_name_of_the_job(at: PartPath) -> None:
    with pytest.raises(InvalidArguments, match="cannot put together the arguments of job j"):
        fill_arguments(decode_envelope(_lacking(at)), [b"1"])


def test_a_body_without_arguments_keeps_the_version_of_its_parts() -> None:
    body = _lacking(("args", 1))

    light = decode_envelope(refer(body, JSON, _BLOB))

    assert light.v == IN_PARTS
    whole = fill_arguments(put_back(light, arguments_in(body, JSON), JSON), [b"2"])
    assert bytes(whole.args) == b"[1,2]"
