"""The codec against calls and bytes that hypothesis thinks of."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict, get_args
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import BaseModel

from taskmq.errors import EncodeError, InvalidArguments
from taskmq.model.codec import Arguments, ReturnType, Signature
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.wire_form import decode_value, encode_value
from taskmq.run.context import Context

_content_types = st.sampled_from([JSON, MSGPACK])


class Fruit(Enum):
    APPLE = "apple"
    PEAR = "pear"


@dataclass(frozen=True)
class Box:
    fruits: list[Fruit]
    weight: float | None = None


class Label(msgspec.Struct, frozen=True):
    text: str
    at: datetime


class Size(NamedTuple):
    width: int
    height: int


class Note(TypedDict):
    text: str
    stars: int


class Buyer(BaseModel):
    name: str
    age: int | None = None


# What a strategy gives for an annotation.
_text = st.text(st.characters(exclude_categories=["Cs"]))
_small = st.integers(-(2**63), 2**63 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_instants = st.datetimes(timezones=st.just(UTC))
_fruits = st.sampled_from(Fruit)
_boxes = st.builds(Box, fruits=st.lists(_fruits), weight=st.none() | _floats)
_labels = st.builds(Label, text=_text, at=_instants)
_buyers = st.builds(Buyer, name=_text, age=st.none() | st.integers(0, 200))
_sizes = st.builds(Size, _small, _small)
_plain = st.recursive(
    st.none() | st.booleans() | _small | _floats | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)
_by_kind: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, _small),
    (float, _floats),
    (str, _text),
    (bool, st.booleans()),
    (bytes, st.binary()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (datetime, _instants),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Fruit, _fruits),
    (str | int, _text | _small),
    (tuple[int, str], st.tuples(_small, _text)),
    (list[Fruit], st.lists(_fruits)),
    (set[int], st.sets(_small)),
    (dict[str, list[int]], st.dictionaries(_text, st.lists(_small))),
    (dict[int, str], st.dictionaries(_small, _text)),
    (Size, _sizes),
    (Note, st.fixed_dictionaries({"text": _text, "stars": _small})),
    (Box, _boxes),
    (Label, _labels),
    (Buyer, _buyers),
    (list[Buyer | None], st.lists(st.none() | _buyers)),
    (Any, _plain),
    (object, _plain),
]


def _of(kind: Any) -> st.SearchStrategy[Any]:
    if kind is inspect.Parameter.empty:
        return _plain
    for known, values in _by_kind:
        if kind == known:
            return values
    (inner,) = (each for each in get_args(kind) if each is not type(None))
    return st.none() | _of(inner)


def nothing() -> None: ...
def plain(a, b=None, *c, d=None, **e): ...  # type: ignore[no-untyped-def]
def numbers(a: int, b: float = 0.5, *, c: bool = True) -> None: ...
def times(a: datetime, b: timedelta, c: date | None = None) -> None: ...
def strict(a: UUID, b: Decimal = Decimal(1), /, *, c: bytes, d: Literal["a", "b"] = "a") -> None: ...
def mixed(a: Box, /, b: list[Fruit], c: int | None = None, *, d: Label, e: str = "") -> None: ...
def rest(a: int, *more: Fruit, b: str = "") -> None: ...
def options(*, a: Note | None = None, **more: Label) -> None: ...
def everything(a: int, /, b: str = "", *c: Size, d: Buyer, e: Any = None, **f: set[int]) -> None: ...
def models(a: Buyer, b: list[Buyer | None], c: dict[int, str] | None = None) -> None: ...
def with_context(a: int, ctx: Context, b: str | int = 0, *c: object) -> None: ...
def context_first(ctx: Context, /, a: Box, b: Size | None = None) -> None: ...
def context_last(a: tuple[int, str] = (1, ""), *, b: dict[str, list[int]], ctx: Context | None = None) -> None: ...


_FUNCTIONS: list[Callable[..., Any]] = [
    nothing,
    plain,
    numbers,
    times,
    strict,
    mixed,
    rest,
    options,
    everything,
    models,
    with_context,
    context_first,
    context_last,
]
_SIGNATURES = {each: Signature(each, owner=each.__name__, injected=Context) for each in _FUNCTIONS}


_KINDS: list[Any] = [*(kind for kind, _ in _by_kind), Label | None, int | None, Buyer | None]


def _is_context(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in (Context, Context | None)


@st.composite
def calls(draw: st.DrawFn, function: Callable[..., Any]) -> Arguments:
    """A call that fits: any split between position and name, optional ones given or not."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    is_positional = True
    taken = set(inspect.signature(function).parameters)
    for parameter in inspect.signature(function).parameters.values():
        if _is_context(parameter):
            continue
        values = _of(parameter.annotation)
        match parameter.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                args.extend(draw(st.lists(values, max_size=3)) if is_positional else [])
            case inspect.Parameter.VAR_KEYWORD:
                names = _text.filter(lambda name: name not in taken)
                kwargs |= draw(st.dictionaries(names, values, max_size=3))
            case inspect.Parameter.POSITIONAL_ONLY:
                # Once one is left out, those behind it are.
                if is_positional and (parameter.default is parameter.empty or draw(st.booleans())):
                    args.append(draw(values))
                else:
                    is_positional = False
            case _:
                if parameter.default is not parameter.empty and draw(st.booleans()):
                    is_positional = False
                    continue
                if parameter.kind is parameter.KEYWORD_ONLY or not is_positional or draw(st.booleans()):
                    is_positional = False
                    kwargs[parameter.name] = draw(values)
                else:
                    args.append(draw(values))
    return tuple(args), kwargs


@given(st.data(), st.sampled_from(_FUNCTIONS), _content_types)
def test_every_valid_call_survives_the_round_trip(
    data: st.DataObject, function: Callable[..., Any], content_type: str
) -> None:
    args, kwargs = data.draw(calls(function))
    signature = _SIGNATURES[function]

    decoded = signature.decode(*signature.encode(args, kwargs, content_type), content_type)

    assert decoded == (args, kwargs)


@given(st.data(), st.sampled_from([with_context, context_first, context_last]))
def test_the_context_takes_only_its_own_position_in_every_call(
    data: st.DataObject, function: Callable[..., Any]
) -> None:
    context = Context.detached("t")
    args, kwargs = data.draw(calls(function))
    typed = inspect.signature(function)

    called = typed.bind(*_SIGNATURES[function].with_context((args, kwargs), context)[0],
                        **_SIGNATURES[function].with_context((args, kwargs), context)[1])  # fmt: skip

    given_ones = {name: value for name, value in called.arguments.items() if name != "ctx"}
    without = typed.replace(parameters=[each for each in typed.parameters.values() if not _is_context(each)])
    assert called.arguments["ctx"] is context
    assert given_ones == without.bind(*args, **kwargs).arguments


def _expect_only_invalid_arguments(
    signature: Signature, args: bytes, kwargs: bytes, content_type: str | None
) -> None:
    try:
        signature.decode(Raw(args), Raw(kwargs), content_type)
    except InvalidArguments as error:
        assert str(error)  # noqa: PT017 - either outcome is fine


@given(st.sampled_from(_FUNCTIONS), st.binary(max_size=60), st.binary(max_size=60), _content_types | st.none())
def test_bytes_that_are_not_a_call_are_invalid_arguments(
    function: Callable[..., Any], args: bytes, kwargs: bytes, content_type: str | None
) -> None:
    _expect_only_invalid_arguments(_SIGNATURES[function], args, kwargs, content_type)


@given(st.sampled_from(_FUNCTIONS), _plain, _plain, _content_types)
def test_values_that_are_not_a_call_are_invalid_arguments(
    function: Callable[..., Any], args: object, kwargs: object, content_type: str
) -> None:
    raw_args, raw_kwargs = encode_value(args, content_type), encode_value(kwargs, content_type)

    _expect_only_invalid_arguments(_SIGNATURES[function], raw_args, raw_kwargs, content_type)


@given(st.data(), st.sampled_from(_FUNCTIONS), _content_types)
def test_a_damaged_call_is_at_worst_invalid_arguments(
    data: st.DataObject, function: Callable[..., Any], content_type: str
) -> None:
    args, kwargs = (bytearray(bytes(raw)) for raw in
                    _SIGNATURES[function].encode(*data.draw(calls(function)), content_type))  # fmt: skip
    for part in (args, kwargs):
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(part)))
            part[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))

    _expect_only_invalid_arguments(_SIGNATURES[function], bytes(args), bytes(kwargs), content_type)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"\x91", b"\x81\xa1a"])
@pytest.mark.parametrize("function", _FUNCTIONS)
def test_an_infinitely_nested_value_is_invalid_arguments(function: Callable[..., Any], opening: bytes) -> None:
    deep = opening * 100_000
    content_type = JSON if opening[0] < 0x80 else MSGPACK

    for args, kwargs in ((deep, b""), (b"", deep)):
        with pytest.raises(InvalidArguments):
            _SIGNATURES[function].decode(Raw(args), Raw(kwargs), content_type)


@given(_plain, _content_types)
def test_plain_data_survives_the_round_trip(value: object, content_type: str) -> None:
    assert decode_value(encode_value(value, content_type), content_type) == value


@given(st.data(), st.sampled_from(_KINDS), _content_types)
def test_a_result_of_any_type_survives_the_round_trip(data: st.DataObject, kind: Any, content_type: str) -> None:
    value = data.draw(_of(kind))

    assert ReturnType(kind).decode(encode_value(value, content_type), content_type) == value


@given(st.sampled_from(_KINDS), st.binary(max_size=60), _content_types)
def test_bytes_that_are_not_a_result_are_an_encode_error(kind: Any, data: bytes, content_type: str) -> None:
    try:
        ReturnType(kind).decode(data, content_type)
    except EncodeError as error:
        assert str(error).startswith("the stored result")  # noqa: PT017 - either outcome is fine
