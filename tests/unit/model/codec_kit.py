"""Functions and types whose arguments are encoded."""

import inspect  # noqa: F401 - annotations that are texts name it
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime  # noqa: F401 - annotations that are texts name `datetime`
from decimal import Decimal
from enum import Enum, IntEnum
from typing import (
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    TypedDict,
    TypeVar,
)

import msgspec
import pytest
from pydantic import BaseModel

from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.parameters import Arguments
from taskmq.run.context import Context

T = TypeVar("T")
both_forms = pytest.mark.parametrize("content_type", [JSON, MSGPACK])


def signature(function: Callable[..., Any]) -> Signature:
    return Signature(function, owner="shop.sell", injected=Context)


def round_trip(content_type: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Arguments:
    typed = signature(function)
    return typed.decode(*typed.encode(args, kwargs, content_type), content_type)


def taking(kind: Any) -> Callable[[Any], None]:
    """Return a function with one parameter of that type."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    return function


def returning(kind: Any) -> Callable[[], Any]:
    def function() -> Any: ...

    function.__annotations__["return"] = kind
    return function


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5


@dataclass
class Path2D:
    points: list[Point]
    named: dict[str, Point] = field(default_factory=dict)
    next: "Path2D | None" = None


class Money(msgspec.Struct, frozen=True):
    amount: Decimal
    currency: Literal["EUR", "USD"] = "EUR"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Version(NamedTuple):
    major: int
    minor: int = 0


class User(BaseModel):
    name: str
    born: date | None = None


class Team(BaseModel):
    lead: User
    members: list[User]


@dataclass
class Reciprocal:
    of: int

    def __post_init__(self) -> None:
        self.value = 1 / self.of
