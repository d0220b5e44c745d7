"""Differences between a value as it was sent and as it arrives. Pure.

Most values are equal when they arrive, which costs one comparison. Unequal ones may still have lost nothing: NaN is
not equal to itself, and an object without `__eq__` to no other. A reader without an annotated type decodes another
type: a list for a tuple, a dictionary for a dataclass, and text for an instant. What counts is that all of the
sender's data is there.
"""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite, isnan
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec

from taskmq.model.values.objects import fields_of, is_model, plain_model, private_state

_NO_FLOAT: Final = (
    "JSON has no NaN and no infinity: say None or a text, or send it as MessagePack, TaskMQ(content_type='msgpack')"
)
_NO_OFFSET: Final = "its UTC offset has seconds, which have no form on the wire: "
_KEYS: Final = "JSON has no keys but texts: annotate the type of the keys, such as dict[int, str]"

_Lost = tuple[str, str] | None
"""The kind of the loss, and the path to the value."""


def difference(sent: object, arrived: object) -> str | None:
    """Describe what `arrived` lacks of `sent`, without quoting values; None if nothing is lost."""
    lost = _find_loss(sent, arrived)
    if lost is None:
        return None
    reason, path = lost
    return f"{reason} - at `{path.removeprefix('.')}`" if path else reason


def _find_loss(sent: Any, arrived: Any) -> _Lost:
    if _is_equal(sent, arrived):
        return None
    if isinstance(sent, float) and not isfinite(sent):
        return None if isinstance(arrived, float) and isnan(sent) and isnan(arrived) else (_NO_FLOAT, "")
    if isinstance(sent, datetime | time):
        return _lost_of_time(sent, arrived)
    if _is_a(sent, Mapping):
        return _lost_of_mapping(sent, arrived)
    if isinstance(sent, list | tuple | AbstractSet):
        return _lost_of_items(cast("Collection[Any]", sent), arrived)
    if (fields := fields_of(sent)) is not None:
        return _lost_of_object(sent, fields, arrived)
    return _lost_of_scalar(sent, arrived)


def _is_equal(sent: Any, arrived: Any) -> bool:
    try:
        return bool(sent == arrived)
    except Exception:  # noqa: BLE001 - a signalling NaN, or code of the value's own type
        return False


def _lost_of_time(sent: datetime | time, arrived: Any) -> _Lost:
    offset = sent.utcoffset()
    if isinstance(sent, datetime) and isinstance(arrived, datetime) and offset is not None:
        other = arrived.utcoffset()
        # In two time zones, instants in a repeated hour are never equal.
        if other is not None and sent.replace(tzinfo=None) - arrived.replace(tzinfo=None) == offset - other:
            return None
    if offset is not None and (offset.seconds % 60 or offset.microseconds):
        advice = "use value.astimezone(UTC)" if isinstance(sent, datetime) else "use one of whole minutes"
        return f"{_NO_OFFSET}{advice}", ""
    return _lost_of_scalar(sent, arrived)


def _lost_of_mapping(sent: Any, arrived: Any) -> _Lost:
    if not _is_a(arrived, Mapping):
        # Pydantic's own rules decide how data that is not yet a model is validated.
        fields = None if is_model(_type(arrived)) else fields_of(arrived)
        return None if fields is None else _lost_of_fields(sent, fields, arrived)
    there = cast("Mapping[Any, Any]", arrived)
    if len(sent) > len(there):
        lost = next((key for key in sent if key not in there and str(key) not in there), None)
        return (_KEYS, "") if lost is None else (f"its type has no {lost!r}, which would be left out", "")
    for (key, value), (other_key, other) in zip(sent.items(), there.items(), strict=False):
        if isinstance(key, int | float) and isinstance(other_key, str):
            return _KEYS, ""
        if (lost := _find_loss(key, other_key) or _find_loss(value, other)) is not None:
            return lost[0], f"[...]{lost[1]}"
    return None


def _lost_of_items(sent: Collection[Any], arrived: Any) -> _Lost:
    fields = fields_of(arrived)
    here, there = list(sent), list(arrived if fields is None else fields.values())
    if isinstance(sent, AbstractSet) or isinstance(arrived, AbstractSet):
        here, there = sorted(here, key=_order), sorted(there, key=_order)
    if len(here) > len(there):
        return f"of its {len(here)} items {len(there)} would arrive", ""
    for number, (value, other) in enumerate(zip(here, there, strict=False)):
        if (lost := _find_loss(value, other)) is not None:
            return lost[0], f"[{number}]{lost[1]}"
    return None


def _lost_of_object(sent: Any, fields: dict[str, Any], arrived: Any) -> _Lost:
    kind = _type(sent)
    there = fields_of(arrived)
    if there is None:
        # Without an annotated type it is decoded as plain data.
        plain = plain_model(sent) if is_model(kind) else fields
        if not isinstance(plain, dict):
            return _find_loss(plain, arrived)
        named = cast("dict[str, Any]", plain)
        if not isinstance(arrived, Mapping):
            return _find_loss(list(named.values()), arrived)
        if isinstance(sent, msgspec.Struct) and sent.__struct_config__.omit_defaults:
            named = {name: value for name, value in named.items() if name in arrived}
        return _lost_of_fields(named, cast("Mapping[str, Any]", arrived), arrived)
    if kind is not type(arrived):
        return (
            f"it would arrive as a {type(arrived).__qualname__}: annotate {kind.__qualname__}",
            "",
        )
    lost = _lost_of_fields(fields, there, arrived)
    return lost if lost is not None or not is_model(kind) else _lost_of_private_state(sent, arrived)


def _lost_of_fields(sent: Mapping[Any, Any], there: Mapping[str, Any], arrived: Any) -> _Lost:
    tag = arrived.__struct_config__.tag_field if isinstance(arrived, msgspec.Struct) else None
    for name, value in sent.items():
        if name in there:
            if (lost := _find_loss(value, there[name])) is not None:
                return lost[0], f".{name}{lost[1]}"
        elif name != tag:
            return f"{type(arrived).__qualname__} has no {name!r}, which would be left out", ""
    return None


def _lost_of_private_state(sent: Any, arrived: Any) -> _Lost:
    there = private_state(arrived)
    for name, value in private_state(sent).items():
        other = there.get(name)
        # Locks are not comparable, and hold no data.
        is_comparable = type(value) is not type(other) or "__eq__" in {
            name for base in type(value).__mro__[:-1] for name in vars(base)
        }
        if is_comparable and not _is_equal(value, other):
            return "private attributes do not travel", f".{name}"
    return None


def _lost_of_scalar(sent: Any, arrived: Any) -> _Lost:
    if isinstance(sent, str) and not isinstance(arrived, str | None):
        # Its type has read all of it.
        return None
    if isinstance(sent, Enum):
        sent = sent.value
    if isinstance(arrived, Enum):
        arrived = arrived.value
    if isinstance(sent, float | int | Decimal) and isinstance(arrived, float | int | Decimal):
        is_same = _is_equal(Decimal(str(sent)), Decimal(str(arrived))) or str(sent) == str(arrived)
    else:
        text = _text(sent)
        is_same = text is not None and text == _text(arrived)
    return None if is_same else ("it would arrive as another value: say a plain one, or annotate its type", "")


def _text(value: Any) -> bytes | None:
    """Return a value's text form; None if it has none."""
    try:
        return msgspec.json.encode(value, enc_hook=_path_text)
    except Exception:  # noqa: BLE001 - of a value's own type
        return None


def _path_text(value: Any) -> str:
    if not isinstance(value, PurePath):
        raise NotImplementedError
    return str(value)


def _order(value: Any) -> bytes:
    return _text(value) or repr(value).encode(errors="replace")


def _is_a(value: Any, kind: Any) -> bool:
    return isinstance(value, kind)


def _type(value: object) -> type[Any]:
    return type(value)
