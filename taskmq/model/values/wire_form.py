"""Encoding of a value as JSON or MessagePack, and decoding. Pure.

`difference` checks whether the decoded value equals the encoded one.
"""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, Final, Protocol, cast

import msgspec

from taskmq.errors import EncodeError
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.difference import difference
from taskmq.model.values.objects import is_model, plain_model, read_model


class Decoder(Protocol):
    """Decodes one type from one content type."""

    def decode(self, data: Any, /) -> Any: ...


def _encode_hook(value: object) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    kind = type(value)
    if not is_model(kind):
        raise TypeError(
            f"a value of type {kind.__qualname__} cannot be encoded: use strings, numbers, lists, dictionaries, "
            "dataclasses or pydantic models"
        )
    plain = plain_model(value)
    try:
        arrived = read_model(kind, plain)
    except Exception as error:
        raise TypeError(
            f"a {kind.__qualname__} cannot be decoded from its own encoding: {type(error).__name__} in "
            f"{_places(error)}; make the model's serializers and validators match"
        ) from error
    if (lost := difference(value, arrived)) is not None:
        raise TypeError(f"a {kind.__qualname__} changes when encoded and decoded: {lost}; give it a serializer")
    return plain


def _places(error: Exception) -> str:
    """Return the fields that pydantic complains about, without their values."""
    found = getattr(error, "errors", None)
    if found is None:
        return "a validator"
    return ", ".join(".".join(map(str, each["loc"])) or "the model" for each in found(include_input=False))


def decode_hook(kind: Any, value: Any) -> Any:
    """Decode types that msgspec does not know: paths and pydantic models."""
    if kind is object:
        return value
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError(f"Expected a path as `str`, got `{type(value).__name__}`")
    return read_model(kind, value)


ENCODERS: Final[Mapping[str, Callable[[object], bytes]]] = {
    JSON: msgspec.json.Encoder(enc_hook=_encode_hook).encode,
    MSGPACK: msgspec.msgpack.Encoder(enc_hook=_encode_hook).encode,
}
"""Encoder of each content type; it raises whatever the values' own serializers raise."""


def encode_value(value: object, content_type: str) -> bytes:
    """Encode `value` in the given content type.

    Raises:
        EncodeError: it cannot be encoded.
    """
    try:
        return ENCODERS[MSGPACK if content_type == MSGPACK else JSON](value)
    except Exception as error:  # a model's own serializer may raise anything
        raise EncodeError(str(error)) from error


def encode_json(value: object) -> bytes:
    """Encode `value` as JSON for readers without types: texts, numbers, lists and dictionaries arrive equal.

    Raises:
        EncodeError: it cannot be encoded as JSON, such as NaN.
    """
    try:
        data = ENCODERS[JSON](value)
        plain = msgspec.to_builtins(value, enc_hook=_encode_hook)
    except Exception as error:  # a model's own serializer may raise anything
        raise EncodeError(str(error)) from error
    if (lost := difference(plain, decode_value(data, JSON))) is not None:
        raise EncodeError(lost)
    return data


def decode_value(data: bytes, content_type: str) -> Any:
    """Decode `data` as plain dictionaries, lists, strings and numbers."""
    return decoder_of(Any, content_type).decode(data)


def decoder_of(kind: Any, content_type: str) -> Decoder:
    """Return the decoder of a type for a content type."""
    if content_type == MSGPACK:
        return cast("Decoder", msgspec.msgpack.Decoder(kind, dec_hook=decode_hook))
    return cast("Decoder", msgspec.json.Decoder(kind, dec_hook=decode_hook))
