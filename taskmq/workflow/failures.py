"""The errors of steps, as the state keeps them. Pure."""

import msgspec

from taskmq.contracts.stores import ErrorRecord

__all__ = ["decode_failure", "encode_failure"]

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ErrorRecord)


def encode_failure(error: ErrorRecord) -> bytes:
    return _encode(error)


def decode_failure(data: bytes) -> ErrorRecord | None:
    """The error; None where there is none, as of a map whose calls have failed."""
    if not data:
        return None
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return None
