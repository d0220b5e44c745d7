"""Large values that are kept elsewhere: references to results, and values in JSON that lack such parts.

The content type of a result says that it is a reference. Runs of workflows pass values on:

    result of a step at `results_at`     -> keep_whole -> the step's stored value
    values of children                   -> join_values -> one list
    template with values of steps        -> lighten -> arguments of a job, or the value of a run
    arguments, and the parts once loaded -> fill -> the whole arguments

A stored value that lacks parts begins with a byte that no JSON begins with.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from taskmq.model.envelope import BlobReference, KeptPart, PartPath

REFERENCE: Final = "taskmq/reference"
"""The content type of the reference that replaces a large value in a claim, report or stored job."""

_MARK: Final = b"\0"
_NULL: Final = msgspec.Raw(b"null")


class ResultReference(msgspec.Struct, frozen=True):
    """The reference that replaces a large value."""

    content_type: str
    blob: BlobReference


class LightValue:
    """A value whose parts are kept elsewhere.

    Args:
        value: JSON, with null in the place of each part.
        parts: at paths within the value; the empty path is the value itself.
    """

    __slots__ = ("parts", "value")

    def __init__(self, value: msgspec.Raw, parts: tuple[KeptPart, ...]) -> None:
        self.value: msgspec.Raw = value
        self.parts: tuple[KeptPart, ...] = parts

    @property
    def size(self) -> int:
        """Size of the parts together, in bytes."""
        return sum(part.blob.size for part in self.parts)

    def store(self) -> bytes:
        """Return the form that `open_value` reads: JSON if no part is missing."""
        if not self.parts:
            return bytes(self.value)
        return _MARK + msgspec.json.encode(_StoredLight(self.value, self.parts))


class _StoredLight(msgspec.Struct, frozen=True):
    value: msgspec.Raw
    parts: tuple[KeptPart, ...]


class _HasParts(Exception):
    """Raised when a template's value contains a `LightValue`."""


def _find_part(_value: object) -> Any:
    raise _HasParts


_encoder: Final = msgspec.json.Encoder(enc_hook=_find_part)
_stored: Final = msgspec.json.Decoder(_StoredLight)
_container: Final[msgspec.json.Decoder[list[msgspec.Raw] | dict[str, msgspec.Raw]]] = msgspec.json.Decoder(
    list[msgspec.Raw] | dict[str, msgspec.Raw]
)


def reference_to(content_type: str, blob: BlobReference) -> bytes:
    """Encode the JSON that replaces a large value as the result in a report."""
    return msgspec.json.encode(ResultReference(content_type, blob))


def read_reference(result: bytes) -> tuple[str, BlobReference] | None:
    """Return the content type and location of the value that a result refers to; None if the reference is damaged."""
    try:
        reference = msgspec.json.decode(result, type=ResultReference)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return reference.content_type, reference.blob


def keep_whole(blob: BlobReference) -> bytes:
    """Return the stored form of a value that is kept elsewhere as a whole."""
    return LightValue(_NULL, (KeptPart(at=(), blob=blob),)).store()


def open_value(stored: bytes) -> msgspec.Raw | LightValue:
    """Return a stored value, as a leaf of what `lighten` takes."""
    if not stored.startswith(_MARK):
        return msgspec.Raw(stored)
    found = _stored.decode(stored[len(_MARK) :])
    return LightValue(found.value, found.parts)


def join_values(stored: Iterable[bytes]) -> bytes:
    """Return the stored form of the list of these stored values."""
    parts, values = _Parts(), list[bytes]()
    for index, each in enumerate(stored):
        found = open_value(each) if each.startswith(_MARK) else each
        values.append(bytes(parts.take(found, (index,))) if isinstance(found, LightValue) else found)
    # Joined by hand: encoding would copy each value once more.
    joined = b"[" + b",".join(values) + b"]"
    return LightValue(msgspec.Raw(joined), tuple(parts)).store() if parts else joined


def lighten(tree: Any, *at: str | int) -> LightValue:
    """Encode JSON data whose leaves may be encoded values and `LightValue`s.

    Args:
        at: path of the data, which the paths of its parts begin with.
    """
    parts = _Parts()
    try:
        value = _encoder.encode(tree)
    except _HasParts:
        value = _encoder.encode(_take_parts(tree, at, parts))
    return LightValue(msgspec.Raw(value), tuple(parts))


def fill(value: bytes, parts: Mapping[PartPath, bytes]) -> bytes:
    """Return a value in JSON with its parts, by their paths.

    Raises:
        ValueError: a path leads to nothing.
    """
    if not parts:
        return value
    if () in parts:
        return parts[()]
    below: dict[str | int, dict[PartPath, bytes]] = {}
    for at, part in parts.items():
        below.setdefault(at[0], {})[at[1:]] = part
    try:
        container: Any = _container.decode(value)
        for key, its in below.items():
            container[key] = msgspec.Raw(fill(bytes(container[key]), its))
    except (LookupError, TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"a part of the value has no place: {type(error).__name__}: {error}") from error
    return msgspec.json.encode(container)


class _Parts(list[KeptPart]):
    """Parts that were taken out of a value."""

    def take(self, value: LightValue, at: PartPath) -> msgspec.Raw:
        """Add the parts of a value at a path; return the rest of it."""
        self += [KeptPart(at=(*at, *part.at), blob=part.blob) for part in value.parts]
        return value.value


def _take_parts(tree: Any, at: PartPath, parts: _Parts) -> Any:
    match tree:
        case LightValue():
            return parts.take(tree, at)
        case list() | tuple():
            items = enumerate(cast("list[Any]", tree))
            return [_take_parts(item, (*at, index), parts) for index, item in items]
        case dict():
            named = cast("dict[str, Any]", tree).items()
            return {key: _take_parts(item, (*at, key), parts) for key, item in named}
        case _:
            return tree
