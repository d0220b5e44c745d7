"""The fields of objects, and pydantic models as plain data and back."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import attrs
import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from taskmq.model.values.objects import fields_of, is_model, plain_model, private_state, read_model


class _Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    order_id: int = Field(alias="orderId")
    share: float | None = None
    _seen: int = 0


class _Raw(BaseModel):
    raw: bytes
    at: datetime


class _Former:
    """A model like those before pydantic 2.11, which reads only by alias."""

    @classmethod
    def model_validate_json(cls, text: str) -> str:
        return text


def test_a_model_is_written_by_its_names_and_read_by_both() -> None:
    order = _Order(orderId=7, more="x")  # type: ignore[call-arg]

    assert plain_model(order) == {"order_id": 7, "share": None, "more": "x"}
    assert read_model(_Order, plain_model(order)) == order
    assert read_model(_Order, {"orderId": 7, "more": "x"}) == order


def test_a_number_outside_json_is_read_unchanged() -> None:
    assert read_model(_Order, {"orderId": 7, "share": float("inf")}).share == float("inf")


def test_messagepack_types_beyond_json_are_read_too() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)

    assert read_model(_Raw, {"raw": b"\xff", "at": at}) == _Raw(raw=b"\xff", at=at)


def test_an_older_pydantic_is_not_called_with_unknown_options() -> None:
    assert read_model(_Former, {"a": 1}) == '{"a": 1}'


def test_a_model_has_its_own_fields_and_the_extra_ones_it_accepts() -> None:
    order = _Order(orderId=7, more="x")  # type: ignore[call-arg]
    order._seen = 3

    assert fields_of(order) == {"order_id": 7, "share": None, "more": "x"}
    assert private_state(order) == {"_seen": 3}
    assert (fields_of(_Raw(raw=b"", at=datetime(2026, 1, 1, tzinfo=UTC))) or {}).keys() == {"raw", "at"}
    assert private_state(_Raw(raw=b"", at=datetime(2026, 1, 1, tzinfo=UTC))) == {}


@pytest.mark.parametrize(("kind", "expected"), [(_Order, True), (int, False), (_Former, False)])
def test_a_model_is_recognised_by_its_methods(kind: type[Any], expected: bool) -> None:
    assert is_model(kind) is expected


@dataclass
class _Point:
    x: int
    unset: int = field(init=False, repr=False)


@attrs.define
class _Crate:
    label: str


class _Cat(msgspec.Struct, rename="camel"):
    nine_lives: int


class _User(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_Point(1), {"x": 1, "unset": None}),
        (_Crate("a"), {"label": "a"}),
        (_Cat(9), {"nineLives": 9}),
        (_User(name="Ada"), {"name": "Ada"}),
        (1, None),
        ({"a": 1}, None),
        (_Point, None),
    ],
    ids=repr,
)
def test_an_object_has_the_fields_that_it_has_on_the_wire(value: Any, expected: dict[str, Any] | None) -> None:
    assert fields_of(value) == expected
