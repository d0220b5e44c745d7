"""Fields of objects, and the encoding of pydantic models by their own methods. Pure.

A model is encoded with its field names as plain data, and decoded from JSON by its names and its aliases. taskmq
itself does not need pydantic.
"""

import dataclasses
import json
from typing import Any, cast

import msgspec


def is_model(kind: type[Any]) -> bool:
    """Return whether a class is a pydantic model."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate_json")


def fields_of(value: object) -> dict[str, Any] | None:
    """Return the fields of a dataclass, Struct, attrs class or pydantic model, as encoded; None for anything else.

    The fields of a model include its extra fields.
    """
    kind = type(value)
    if issubclass(kind, msgspec.Struct):
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        return {encoded: getattr(value, name) for encoded, name in names}
    if is_model(kind):
        model = cast("Any", value)
        names_of: Any = kind
        return {
            **{str(name): getattr(model, name, None) for name in names_of.model_fields},
            **(model.__pydantic_extra__ or {}),
        }
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(kind)}
    attributes = cast("Any", getattr(kind, "__attrs_attrs__", None))
    if attributes is not None:
        return {attribute.name: getattr(value, attribute.name) for attribute in attributes}
    return None


def private_state(model: Any) -> dict[str, Any]:
    """Return a model's private attributes, which do not travel."""
    return dict(model.__pydantic_private__ or {})


def plain_model(model: Any) -> Any:
    """Return the model as plain data; `read_model` builds an equal one from it, or the model cannot travel.

    Raises:
        Exception: whatever the model's own serializers raise.
    """
    return model.model_dump(mode="json", round_trip=True, warnings=False)


def read_model(kind: type[Any], data: Any) -> Any:
    """Build a model from plain data.

    Raises:
        Exception: whatever the model's validators raise.
    """
    try:
        # With NaN and the infinities as pydantic parses them.
        text = json.dumps(data)
    except TypeError:
        # MessagePack of another language may contain bytes and times.
        return cast("Any", kind).model_validate(data)
    model = cast("Any", kind)
    # By name and by alias from pydantic 2.11 on; before, as the model's configuration says.
    options = {"by_name": True} if "by_name" in (model.model_validate_json.__kwdefaults__ or {}) else {}
    return model.model_validate_json(text, **options)
