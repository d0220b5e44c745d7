"""Bodies that refer to their arguments."""

from typing import Any

import msgspec
import pytest

from taskmq.errors import InvalidArguments, MalformedMessage
from taskmq.model.envelope import JSON, MSGPACK, REFERRING, BlobReference, decode_envelope
from taskmq.model.large_arguments import arguments_in, put_back, refer

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
