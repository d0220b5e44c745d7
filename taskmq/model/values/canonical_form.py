"""Canonical JSON of a value, equal in every process: for keys and comparisons. Pure.

The order of a set depends on the process, and that of a dictionary on the code that filled it. Neither is part of the
value. Fields keep their order, so values without a set or a dictionary are written as they travel.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from taskmq.model.envelope import JSON
from taskmq.model.values.objects import fields_of
from taskmq.model.values.wire_form import decode_value, encode_value


def canonical_json(value: object) -> bytes:
    """Encode `value` as JSON with its sets and dictionary keys sorted.

    Raises:
        EncodeError: it cannot be encoded as JSON.
    """
    data = encode_value(value, JSON)
    return msgspec.json.encode(canonical_order(value, decode_value(data, JSON)))


def canonical_order(value: Any, plain: Any, *, keeps_keys: bool = False) -> Any:
    """Return `plain`, the plain data of `value`, with sets and keys sorted.

    Args:
        keeps_keys: keep the order of dictionary keys.
    """
    if _is_a(value, Mapping):
        return _mapping(value, plain, keeps_keys)
    if _is_a(value, AbstractSet | list | tuple):
        items: list[Any] = list(value)
        if not _is_a(plain, list) or len(items) != len(plain):
            return plain
        ordered: list[Any] = [
            canonical_order(item, each, keeps_keys=keeps_keys) for item, each in zip(items, plain, strict=True)
        ]
        return sorted(ordered, key=msgspec.json.encode) if _is_a(value, AbstractSet) else ordered
    fields = fields_of(value)
    if fields is None:
        return plain
    if _is_a(plain, dict):
        return {
            name: canonical_order(fields[name], each, keeps_keys=keeps_keys) if name in fields else each
            for name, each in plain.items()
        }
    # An array of a Struct's fields, or the single value of a pydantic root model.
    inner = list(fields.values()) if isinstance(value, msgspec.Struct) else fields.get("root")
    return canonical_order(inner, plain, keeps_keys=keeps_keys)


def _mapping(value: Any, plain: Any, keeps_keys: bool) -> Any:  # noqa: FBT001 - of the one above
    if not _is_a(plain, dict) or len(value) != len(plain):
        return plain
    pairs = zip(value.values(), plain.items(), strict=True)
    found: dict[str, Any] = {
        name: canonical_order(inner, each, keeps_keys=keeps_keys) for inner, (name, each) in pairs
    }
    return found if keeps_keys else dict(sorted(found.items()))


def _is_a(value: Any, kind: Any) -> bool:
    return isinstance(value, kind)
