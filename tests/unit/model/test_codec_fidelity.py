"""Accepted values arrive equal: every kind of type, at every place of a call, in both formats."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from taskmq.errors import EncodeError, InvalidArguments
from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.return_type import ReturnType
from taskmq.run.context import Context

_T = TypeVar("_T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Mood(StrEnum):
    GOOD = "good"


class Level(IntEnum):
    HIGH = 2


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Mode(Flag):
    A = 1
    B = 2


class Size(NamedTuple):
    width: int
    height: float = 0.5


@dataclass
class Base:
    at: datetime | None = None
    share: float | None = None


@dataclass
class Derived(Base):
    more: int = 0


@dataclass
class Renamed(Base):
    """A type without its own field."""


@dataclass
class Node:
    base: Base
    tags: frozenset[str] = frozenset()
    children: "list[Node]" = field(default_factory=list)


@attrs.define
class Crate:
    label: str
    weight: float | None = None


class Plain(msgspec.Struct):
    share: float | None = None


class Longer(Plain):
    more: int = 0


class Cat(msgspec.Struct, tag=True, rename="camel", omit_defaults=True):
    nine_lives: int = 9
    born: date | None = None


class Dog(msgspec.Struct, tag=True):
    name: str
    weight: float | None = None


class Row(msgspec.Struct, array_like=True):
    name: str
    weight: float | None = None


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Person(BaseModel):
    name: str
    share: float | None = None
    at: datetime | None = None


class Employee(Person):
    salary: int = 0


class Camel(BaseModel):
    order_id: int = Field(alias="orderId")
    read_as: int = Field(default=0, validation_alias="readAs")
    written_as: int = Field(default=0, serialization_alias="writtenAs")


class Login(BaseModel):
    user: str
    password: SecretStr


class OpenLogin(BaseModel):
    password: SecretStr

    @field_serializer("password", when_used="json")
    def open(self, value: SecretStr) -> str:
        return value.get_secret_value()


class Hidden(BaseModel):
    a: int = 0
    b: int = Field(default=0, exclude=True)


class Area(BaseModel):
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Private(BaseModel):
    a: int = 0
    _b: int = PrivateAttr(default=0)


class Doubling(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def double(cls, value: int) -> int:
        return value * 2


class Lower(BaseModel):
    a: str

    @field_validator("a")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    at: datetime
    tags: frozenset[int] = frozenset()
    size: tuple[int, str] = (0, "")
    raw: bytes = b""


class Box(BaseModel, Generic[_T]):
    value: _T
    people: list[Person] = []


class Numbers(RootModel[list[float]]):
    pass


@pydantic_dataclass
class Checked:
    a: int
    share: float | None = None


UserId = NewType("UserId", int)

_zones = st.sampled_from(
    [
        UTC,
        timezone(timedelta(hours=5, minutes=30)),
        timezone(timedelta(hours=5, seconds=28)),
        timezone(timedelta(hours=-23, minutes=-59, seconds=-59)),
        ZoneInfo("Europe/Paris"),
        ZoneInfo("Africa/Monrovia"),
        ZoneInfo("Australia/Lord_Howe"),
    ]
)
_text = st.text() | st.sampled_from(["\x00", "\ud800", "a\udcffb", "\U0001f600"])
_ints = st.integers() | st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400])
_floats = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
_datetimes = (
    st.datetimes(timezones=st.none() | _zones, allow_imaginary=True)
    | st.sampled_from(
        [
            datetime(1, 1, 1),  # noqa: DTZ001 - a naive one travels, too
            datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - the same
            datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
        ]
    )
    | st.builds(
        lambda fold: datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=fold), st.integers(0, 1)
    )
)
_times = st.times(timezones=st.none() | _zones)
_bases = st.builds(Base, at=st.none() | _datetimes, share=st.none() | _floats)
_derived = st.builds(Derived, at=st.none(), share=st.none() | _floats, more=st.integers(0, 3))
_people = st.builds(Person, name=_text.filter(str.isprintable), share=st.none() | _floats, at=st.none() | _datetimes)
_employees = st.builds(Employee, name=st.just("Eve"), salary=st.integers(0, 3))
_plain = st.recursive(
    st.none() | st.booleans() | _ints | _floats | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text | st.integers(), inner, max_size=4),
    max_leaves=8,
)


def _private(a: int, b: int) -> Private:
    made = Private(a=a)
    made._b = b
    return made


_CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, _ints | st.sampled_from(Level) | st.sampled_from(Access)),
    (float, _floats | _ints),
    (float | None, st.none() | _floats),
    (list[float | None], st.lists(st.none() | _floats)),
    (dict[str, float | None], st.dictionaries(_text, st.none() | _floats)),
    (bool, st.booleans()),
    (str, _text | st.sampled_from(Mood)),
    (bytes, st.binary()),
    (bytearray, st.binary().map(bytearray)),
    (
        Decimal,
        st.decimals() | st.sampled_from([Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+999"), Decimal("-0")]),
    ),
    (UUID, st.uuids()),
    (datetime, _datetimes),
    (datetime | None, st.none() | _datetimes),
    (date, st.dates()),
    (time, _times),
    (timedelta, st.timedeltas() | st.sampled_from([timedelta.min, timedelta.max, timedelta.resolution])),
    (Path, st.sampled_from([Path("a/b"), Path("/"), Path(), Path("a\udcff")])),
    (Color, st.sampled_from(Color)),
    (Mood, st.sampled_from(Mood)),
    (Level, st.sampled_from(Level)),
    (Access, st.sampled_from([Access.READ, Access.READ | Access.WRITE])),
    (Mode, st.sampled_from([Mode.A, Mode.A | Mode.B])),
    (Literal["a", 3] | None, st.sampled_from(["a", 3, None])),
    (UserId, _ints),
    (set[int], st.sets(_ints) | st.lists(st.integers(0, 3))),
    (frozenset[str], st.frozensets(_text)),
    (frozenset[Color], st.frozensets(st.sampled_from(Color))),
    (set[float], st.sets(_floats)),
    (tuple[int, str], st.tuples(_ints, _text)),
    (tuple[float, ...], st.lists(_floats).map(tuple)),
    (list[int], st.lists(_ints) | st.lists(_ints).map(tuple)),
    (dict[int, str], st.dictionaries(_ints, _text)),
    (dict[UUID, Base], st.dictionaries(st.uuids(), _bases)),
    (dict[Color, int], st.dictionaries(st.sampled_from(Color), _ints)),
    (dict[float, int], st.dictionaries(_floats, _ints)),
    (dict, st.dictionaries(_text | st.integers(), _plain, max_size=3)),
    (Size, st.builds(Size, _ints, _floats)),
    (Base, _bases | _derived | st.builds(Renamed)),
    (Base | None, st.none() | _bases | _derived),
    (Derived, _derived),
    (Node, st.builds(Node, _bases | _derived, st.frozensets(_text), st.just([]))),
    (Crate, st.builds(Crate, _text, st.none() | _floats)),
    (Plain, st.builds(Plain, st.none() | _floats) | st.builds(Longer, more=st.integers(0, 3))),
    (Cat | Dog, st.builds(Cat, _ints, st.none() | st.dates()) | st.builds(Dog, _text, st.none() | _floats)),
    (Row, st.builds(Row, _text, st.none() | _floats)),
    (Address, st.fixed_dictionaries({"street": _text}, optional={"number": _ints, "floor": st.integers(0, 3)})),
    (Person, _people | _employees),
    (list[Person | None], st.lists(st.none() | _people | _employees)),
    (Optional[Person], st.none() | _people),  # noqa: UP045 - the older form is what is tested
    (
        Camel,
        st.builds(
            lambda a, b, c: Camel.model_validate({"orderId": a, "readAs": b, "written_as": c}), _ints, _ints, _ints
        ),
    ),
    (Login, st.builds(Login, user=st.just("a"), password=st.text().map(SecretStr))),
    (OpenLogin, st.builds(OpenLogin, password=st.text().map(SecretStr))),
    (Hidden, st.builds(Hidden, a=_ints, b=st.integers(0, 2))),
    (Area, st.builds(Area, side=_ints)),
    (Private, st.builds(_private, st.integers(), st.integers(0, 2))),
    (Doubling, st.builds(Doubling, a=st.integers(0, 3))),
    (Lower, st.builds(Lower, a=st.sampled_from(["A", "b"]))),
    (
        Strict,
        st.builds(
            Strict,
            at=_datetimes,
            tags=st.frozensets(_ints),
            size=st.tuples(_ints, st.just("x")),
            raw=st.binary(),
            more=st.booleans(),
        ),
    ),
    (Box[int], st.builds(Box[int], value=_ints, people=st.lists(_people | _employees, max_size=2))),
    (Box[datetime], st.builds(Box[datetime], value=_datetimes)),
    (Numbers, st.lists(_floats).map(Numbers)),
    (Checked, st.builds(Checked, a=_ints, share=st.none() | _floats)),
    (int | str | None, _ints | _text | st.none()),
    (int | float, _ints | _floats),
    (list[int] | dict[str, int], st.lists(_ints) | st.dictionaries(_text, _ints)),
    (object, _plain),
    (
        Any,
        _plain
        | _datetimes
        | st.uuids()
        | st.sets(_ints)
        | _bases
        | _people
        | st.builds(Cat)
        | st.sampled_from(Color),
    ),
]


def _is_same(sent: Any, arrived: Any) -> bool:
    """Whether two values are equal at every level; NaN equals itself."""
    if isinstance(sent, float) and math.isnan(sent):
        return isinstance(arrived, float) and math.isnan(arrived)
    if isinstance(sent, datetime) and sent.tzinfo is not None:
        return isinstance(arrived, datetime) and arrived.tzinfo is not None and sent - arrived == timedelta(0)
    if isinstance(sent, Mapping) and isinstance(arrived, Mapping):
        return len(sent) == len(arrived) and all(
            _is_same(*keys) and _is_same(*values)
            for keys, values in zip(
                zip(sent, arrived, strict=True), zip(sent.values(), arrived.values(), strict=True), strict=True
            )
        )
    if isinstance(sent, AbstractSet) and isinstance(arrived, AbstractSet):
        return sorted(map(repr, sent)) == sorted(map(repr, arrived))
    if isinstance(sent, list | tuple) and isinstance(arrived, list | tuple):
        return len(sent) == len(arrived) and all(map(_is_same, sent, arrived))
    if (parts := _parts(sent)) is not None:
        return type(sent) is type(arrived) and _is_same(parts, _parts(arrived))
    if isinstance(sent, Decimal) and sent.is_nan():
        return str(sent) == str(arrived)
    return bool(sent == arrived)


def _parts(value: Any) -> dict[str, Any] | None:
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, Crate):
        return attrs.asdict(value, recurse=False)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


# Passes a value through each place; raises if it is refused.


def _taking(kind: Any) -> Signature:
    def function(first: Any, value: Any, *, named: Any = None) -> None: ...

    function.__annotations__ |= {"first": int, "value": kind, "named": kind}
    return Signature(function, owner="shop.sell", injected=Context)


def _as_argument(kind: Any, value: Any, content_type: str) -> Any:
    signature = _taking(kind)
    (_, arrived), _ = signature.decode(*signature.encode((1, value), {}, content_type), content_type)
    return arrived


def _as_named_argument(kind: Any, value: Any, content_type: str) -> Any:
    signature = _taking(kind)
    raws = signature.encode((1,), {"value": value, "named": value}, content_type)
    _, named = signature.decode(*raws, content_type)
    assert _is_same(named["value"], named["named"])
    return named["named"]


def _as_only_argument(kind: Any, value: Any, content_type: str) -> Any:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = kind
    signature = Signature(function, owner="shop.sell", injected=Context)
    signature.decode(*signature.encode((value,), {}, content_type), content_type)
    # From now on by the decoder of the whole call.
    raws = signature.encode((value,), {}, content_type)
    (arrived,), _ = signature.decode(*raws, content_type)
    return arrived


def _as_result(kind: Any, value: Any, content_type: str) -> Any:
    returns = ReturnType(kind)
    return returns.decode(returns.encode(value, content_type), content_type)


def _as_step(kind: Any, value: Any, content_type: str) -> Any:
    def function() -> Any:
        return value

    function.__annotations__["return"] = kind
    return Context.create_detached("shop.sell").step("one", function)


def _as_checkpoint(kind: Any, value: Any, content_type: str) -> Any:
    context = Context.create_detached("shop.sell")
    context.checkpoint(value)
    return context.last_checkpoint


def _as_heartbeat(kind: Any, value: Any, content_type: str) -> Any:
    context = Context.create_detached("shop.sell")
    context.heartbeat([value])
    assert context.journal is not None
    assert context.journal.details is not None
    return msgspec.json.decode(context.journal.details)[0]


_PLACES: list[Callable[[Any, Any, str], Any]] = [
    _as_argument,
    _as_named_argument,
    _as_only_argument,
    _as_result,
    _as_step,
    _as_checkpoint,
    _as_heartbeat,
]
_PLAIN_PLACES = (_as_checkpoint, _as_heartbeat)
_JSON_PLACES = (_as_step, *_PLAIN_PLACES)


@given(st.data(), st.sampled_from(_CASES), st.sampled_from(_PLACES), st.sampled_from([JSON, MSGPACK]))
def test_every_accepted_value_arrives_equal_or_is_refused_with_a_reason(
    data: st.DataObject, case: tuple[Any, st.SearchStrategy[Any]], place: Callable[..., Any], content_type: str
) -> None:
    kind, values = case
    value = data.draw(values)

    try:
        arrived = place(kind, value, content_type)
    except (EncodeError, InvalidArguments) as refused:
        assert len(str(refused)) > 20  # noqa: PT017 - either is fine, silence is not
        return

    if kind in (Any, object, dict) or place in _PLAIN_PLACES:
        form = JSON if place in _JSON_PLACES else content_type
        assert _is_same(_plain_form(value, form), _plain_form(arrived, form))
        assert _has_whole_minutes(value) or form == MSGPACK
    elif type(value) in (tuple, list) and kind in (set[int], list[int]):
        assert sorted(value) == sorted(arrived)
    else:
        assert _is_same(value, arrived)


def _plain_form(value: Any, content_type: str) -> Any:
    """Return the value as read without a type; MessagePack has its own instants."""
    if content_type == JSON:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_part)
    kept = msgspec.to_builtins(value, str_keys=True, builtin_types=(datetime,), enc_hook=_plain_part)
    return _with_texts(kept)


def _with_texts(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _with_texts(each) for key, each in value.items()}
    return [*map(_with_texts, value)] if isinstance(value, list | tuple) else value


def _plain_part(value: Any) -> Any:
    return value.model_dump(mode="json", round_trip=True) if isinstance(value, BaseModel) else str(value)


def _has_whole_minutes(value: Any) -> bool:
    offset = value.utcoffset() if isinstance(value, datetime | time) else None
    return offset is None or offset % timedelta(minutes=1) == timedelta(0)
