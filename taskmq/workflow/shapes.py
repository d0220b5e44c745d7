"""Types of the values of workflows, which decode them."""

from typing import Any

import msgspec

from taskmq.model.envelope import JSON
from taskmq.model.values.return_type import PLAIN, ReturnType


class ListOf(msgspec.Struct, frozen=True):
    """A list whose items are all of one type."""

    each: ReturnType


Shape = ReturnType | ListOf | tuple["Shape", ...] | dict[str, "Shape"]
"""Type of a value: a single type, a list of one type, a list with one type for each item, or several by name."""


def decode_shape(data: bytes, shape: Shape | None) -> Any:
    """Decode a value in JSON into the types that the tasks return; plain data where they are unknown.

    Raises:
        EncodeError: it does not fit its type.
    """
    # A step without a value has null, whatever its type.
    if data == b"null":
        return None
    match shape:
        case ListOf():
            return [decode_shape(bytes(one), shape.each) for one in msgspec.json.decode(data, type=list[msgspec.Raw])]
        case tuple():
            values = msgspec.json.decode(data, type=list[msgspec.Raw])
            return [decode_shape(bytes(one), kind) for one, kind in zip(values, shape, strict=True)]
        case dict():
            named = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
            return {name: decode_shape(bytes(named[name]), kind) for name, kind in shape.items()}
        case _:
            return (shape or PLAIN).decode(data, JSON)
