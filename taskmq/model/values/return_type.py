"""Conversion of a value to bytes and back, by its annotated type. Pure."""

import inspect
from typing import Any, Final

import msgspec

from taskmq.errors import EncodeError
from taskmq.model.values.difference import difference
from taskmq.model.values.wire_form import Decoder, decode_value, decoder_of, encode_value

# Values of these types are equal after a round trip if their types are.
_CERTAIN: Final = frozenset({int, str, bool, type(None)})


class ReturnType:
    """The annotated return type of a task.

    Args:
        kind: the annotated type; results of a function without one are decoded as plain data.
    """

    __slots__ = ("_certain", "_decoders", "_kind")

    def __init__(self, kind: Any) -> None:
        self._kind = Any if kind is None or kind is inspect.Parameter.empty else kind
        self._certain = _CERTAIN if self._kind is Any else _CERTAIN.intersection([self._kind])
        self._decoders: dict[str, Decoder] = {}

    def encode(self, value: object, content_type: str) -> bytes:
        """Encode `value` so that `decode` returns an equal value.

        Raises:
            EncodeError: no encoding does that; the message says why.
        """
        data = encode_value(value, content_type)
        if type(value) in self._certain:
            return data
        try:
            arrived = self._decoder(content_type).decode(data)
        except Exception as error:
            reason = difference(value, decode_value(data, content_type)) or _words(error)
            raise EncodeError(f"it does not match the annotated type: {reason}") from error
        if (lost := difference(value, arrived)) is not None:
            raise EncodeError(f"it would change when encoded and decoded: {lost}")
        return data

    def decode(self, data: bytes, content_type: str) -> Any:
        """Decode `data` as the annotated type.

        Raises:
            EncodeError: it does not fit the type, for example because the task has changed.
        """
        try:
            return self._decoder(content_type).decode(data)
        except Exception as error:  # a type's own __post_init__ or validator may raise anything
            raise EncodeError(f"the stored result does not match the task's return type: {error}") from error

    def _decoder(self, content_type: str) -> Decoder:
        if (decoder := self._decoders.get(content_type)) is None:
            decoder = self._decoders[content_type] = decoder_of(self._kind, content_type)
        return decoder


PLAIN: Final = ReturnType(Any)
"""Return type of a task without an annotation: results are decoded as plain data."""


def _words(error: Exception) -> str:
    reason, path = split_path(error)
    return f"{reason} - at `{path.removeprefix('.')}`" if path else reason


def split_path(error: Exception) -> tuple[str, str]:
    """Return what is wrong and the path to it; the path is empty for the value itself, or if it is unknown."""
    if not isinstance(error, msgspec.MsgspecError):
        return f"{type(error).__name__}: {error}", ""
    # The last one: what is before it may quote the value.
    reason, marker, path = str(error).rpartition(" - at `$")
    return (reason, path.removesuffix("`")) if marker else (path, "")
