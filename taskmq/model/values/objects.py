"""Fields of objects, and the wire form of pydantic models by their own methods. Pure.

A model is written with the names of its fields, as plain data, and read from JSON: by its names and by its aliases.
taskmq itself does not need pydantic.
"""

import dataclasses
import json
from typing import Any, cast

import msgspec

__all__ = ["fields_of", "is_model", "plain_model", "private_state", "read_model"]


def is_model(kind: type[Any]) -> bool:
    """Whether a class is one of pydantic's models."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate_json")


def fields_of(value: object) -> dict[str, Any] | None:
    """The fields of a dataclass, a Struct, an attrs class or a pydantic model, as on the wire; None of anything else.

    A model has what it takes beside its fields, too.
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
    """Return the state that a model keeps beside its fields, which does not travel."""
    return dict(model.__pydantic_private__ or {})


def plain_model(model: Any) -> Any:
    """The model as plain data; `read_model` makes an equal one of it, or the model cannot travel.

    Raises:
        Exception: whatever the model's own serializers raise.
    """
    return model.model_dump(mode="json", round_trip=True, warnings=False)


def read_model(kind: type[Any], data: Any) -> Any:
    """The model that plain data stands for.

    Raises:
        Exception: whatever the model's validators raise.
    """
    try:
        # With NaN and the infinities as pydantic reads them.
        text = json.dumps(data)
    except TypeError:
        # MessagePack of another language may have bytes and times in it.
        return cast("Any", kind).model_validate(data)
    model = cast("Any", kind)
    # By name as well as by alias, from pydantic 2.11 on; before that, as the model says.
    options = {"by_name": True} if "by_name" in (model.model_validate_json.__kwdefaults__ or {}) else {}
    return model.model_validate_json(text, **options)
