"""Arguments by reference: a message refers to its arguments, or to parts of them, instead of carrying them.

body -> arguments_in -> stored elsewhere -> refer -> a body with `blob` -> put_back -> the original envelope
envelope with `parts` -> fill_arguments -> the envelope with all arguments
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidArguments, MalformedMessage
from taskmq.model.envelope import IN_PARTS, MSGPACK, REFERRING, BlobReference, Envelope, PartPath, amend
from taskmq.model.values.light_values import fill

_EMPTY_JSON: Final = (msgspec.Raw(b"[]"), msgspec.Raw(b"{}"))
_EMPTY_MSGPACK: Final = (msgspec.Raw(b"\x90"), msgspec.Raw(b"\x80"))


class _Call(msgspec.Struct):
    v: int = 0
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    kwargs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_json = msgspec.json.Decoder(_Call)
_msgpack = msgspec.msgpack.Decoder(_Call)


def arguments_in(body: bytes, content_type: str | None) -> bytes:
    """Return the arguments of a body: an array of `args` and `kwargs` in the body's own content type.

    Raises:
        MalformedMessage: the body is not an object.
    """
    is_msgpack, call = content_type == MSGPACK, _read(body, content_type)
    args, kwargs = _EMPTY_MSGPACK if is_msgpack else _EMPTY_JSON
    pair = [
        args if call.args is msgspec.UNSET else call.args,
        kwargs if call.kwargs is msgspec.UNSET else call.kwargs,
    ]
    return msgspec.msgpack.encode(pair) if is_msgpack else msgspec.json.encode(pair)


def refer(body: bytes, content_type: str | None, blob: BlobReference) -> bytes:
    """Return the body with a reference instead of its arguments; versions that do not know references park it.

    Raises:
        MalformedMessage: the body is not an object.
    """
    version = IN_PARTS if _read(body, content_type).v == IN_PARTS else REFERRING
    return amend(body, content_type, {"v": version, "args": None, "kwargs": None, "blob": blob})


def put_back(envelope: Envelope, arguments: bytes, content_type: str | None) -> Envelope:
    """Return the envelope with the arguments that it refers to.

    Args:
        arguments: as `arguments_in` returned them.

    Raises:
        InvalidArguments: they cannot be decoded in this content type.
    """
    decoder = msgspec.msgpack if content_type == MSGPACK else msgspec.json
    try:
        args, kwargs = decoder.decode(arguments, type=tuple[msgspec.Raw, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"cannot decode the arguments that job {envelope.id} refers to: {error}") from error
    return replace(envelope, args=msgspec.Raw(bytes(args)), kwargs=msgspec.Raw(bytes(kwargs)), blob=None)


def fill_arguments(envelope: Envelope, loaded: Sequence[bytes]) -> Envelope:
    """Return the envelope with the parts of its arguments that it refers to.

    Args:
        loaded: the parts in JSON, in the order of `envelope.parts`.

    Raises:
        InvalidArguments: a part has no place in the arguments.
    """
    named: dict[str | int, dict[PartPath, bytes]] = {"args": {}, "kwargs": {}}
    try:
        for part, value in zip(envelope.parts or (), loaded, strict=True):
            named[part.at[0]][part.at[1:]] = value
        args, kwargs = fill(envelope.args, named["args"]), fill(envelope.kwargs, named["kwargs"])
    except (LookupError, ValueError) as error:
        raise InvalidArguments(f"cannot put together the arguments of job {envelope.id}: {error}") from error
    return replace(envelope, args=msgspec.Raw(args), kwargs=msgspec.Raw(kwargs), parts=None)


def _read(body: bytes, content_type: str | None) -> _Call:
    try:
        return (_msgpack if content_type == MSGPACK else _json).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(f"the body is not a task: {error}") from error
