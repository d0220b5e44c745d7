"""Calls and results that are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
)

import msgspec
import pytest
from msgspec import Meta, Raw
from pydantic import BaseModel, field_serializer, field_validator

from taskmq.errors import EncodeError, InvalidArguments
from taskmq.model.envelope import JSON, MSGPACK
from taskmq.model.values.wire_form import encode_value
from tests.unit.model.codec_kit import (
    Color,
    Money,
    Point,
    Reciprocal,
    User,
    Version,
    both_forms,
    signature,
    taking,
)


def _sell(item: str, count: int = 1, *, price: Money | None = None) -> None: ...


def _sell_all(first: int, /, second: Point, *rest: Point, top: int = 0, **more: list[int]) -> None: ...


def _strict(a: int, /, b: int, *, c: int) -> None: ...


def _do_nothing() -> None: ...


_MISFITS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (_sell, (3,), {}, r"Expected `str`, got `int` - at `item`"),
    (_sell, ("a", "b"), {}, r"Expected `int`, got `str` - at `count`"),
    (_sell, ("a", True), {}, r"Expected `int`, got `bool` - at `count`"),
    (_sell, ("a",), {"count": None}, r"Expected `int`, got `(null|None)` - at `count`"),
    (_sell, ("a",), {"price": {"amount": "x"}}, r"Invalid decimal string - at `price.amount`"),
    (_sell, ("a",), {"price": Point(1)}, r"missing required field `amount` - at `price`"),
    (_sell, ("a", 1, None), {}, r"too many arguments, it takes 2"),
    (_sell, ("a",), {"prize": None}, r"task \S+: unknown field `prize`: did you mean 'price'\?$"),
    (_do_nothing, (), {"too": 1}, r"unknown field `too`: it takes no arguments by name"),
    (_sell, (), {}, r"'item' is missing"),
    (_sell, (), {"count": 3}, r"'item' is missing"),
    (_sell, ("a",), {"item": "b"}, r"'item' is passed twice"),
    (_strict, (1,), {"c": 1}, r"'b' is missing"),
    (_strict, (1, 2), {}, r"'c' is missing"),
    (_strict, (1, 2), {"c": 1, "a": 1}, r"unknown field `a`"),
    (_strict, (), {"b": 1, "c": 1}, r"'a' is missing"),
    (_sell_all, ("x", Point(1)), {}, r"Expected `int`, got `str` - at `first`"),
    (_sell_all, (1, Point(1), {"x": "y"}), {}, r"Expected `int`, got `str` - at `rest\[0\].x`"),
    (_sell_all, (1, Point(1), Point(1), 3), {}, r"Expected `object`, got `int` - at `rest\[1\]`"),
    (_sell_all, (1, Point(1)), {"top": "x"}, r"Expected `int`, got `str` - at `top`"),
    (_sell_all, (1,), {"second": 3}, r"Expected `object`, got `int` - at `second`"),
    (_sell_all, (1, Point(1)), {"other": [1, "x"]}, r"Expected `int`, got `str` - at `other\[1\]`"),
    (_sell_all, (1, Point(1)), {"second": Point(1)}, r"'second' is passed twice"),
    (_sell_all, (1,), {}, r"'second' is missing"),
    (_sell_all, (), {"second": Point(1)}, r"'first' is missing"),
    (taking(list[User]), ([{"name": 3}],), {}, r"(?s)name.*Input should be a valid string.* - at `value\[0\]`"),
    (taking(Path), (3,), {}, r"Expected a path as `str`, got `int` - at `value`"),
    (taking(Annotated[int, Meta(gt=0)]), (0,), {}, r"Expected `int` >= 1 - at `value`"),
    (taking(Literal["a"]), ("b",), {}, r"Invalid enum value 'b' - at `value`"),
    (taking(Color), ("green",), {}, r"Invalid enum value 'green' - at `value`"),
    (taking(Version), ((1, 2, 3),), {}, r"Expected `array` of length 1 to 2(, got 3)? - at `value`"),
]


@both_forms
@pytest.mark.parametrize(("function", "args", "kwargs", "said"), _MISFITS)
def test_a_call_that_does_not_match_is_refused_before_it_is_sent_and_says_where(
    content_type: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArguments, match=said) as caught:
        signature(function).encode(args, kwargs, content_type)

    assert str(caught.value).startswith("task shop.sell: ")


@both_forms
def test_a_mismatch_is_reported_the_same_way_after_a_valid_call(content_type: str) -> None:
    ours = signature(taking(int))
    args, kwargs = ours.encode((7,), {}, content_type)
    assert ours.decode(args, kwargs, content_type) == ((7,), {})

    with pytest.raises(InvalidArguments, match=r"^task shop\.sell: Expected `int`, got `str` - at `value`"):
        ours.encode(("seven",), {}, content_type)
    with pytest.raises(EncodeError, match=r"^task shop\.sell: "):
        ours.encode((object(),), {}, content_type)


@both_forms
@pytest.mark.parametrize(("function", "args", "kwargs", "said"), _MISFITS)
def test_a_message_that_does_not_match_is_refused_with_the_same_error(
    content_type: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    raw_args = Raw(encode_value(args, content_type))
    raw_kwargs = Raw(encode_value(kwargs, content_type))

    with pytest.raises(InvalidArguments, match=said):
        signature(function).decode(raw_args, raw_kwargs, content_type)


def test_a_value_with_too_many_members_is_not_reported_as_too_many_arguments() -> None:
    class Pair(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
        a: int

    def function(one: Pair, two: int = 0) -> None: ...

    with pytest.raises(InvalidArguments, match=r"Expected `array` of at most length 1$"):
        signature(function).decode(Raw(b"[[1, 2]]"), Raw(b"{}"), JSON)


@pytest.mark.parametrize(
    ("args", "kwargs"), [(b"[", b"{}"), (b"{}{}", b"{}"), (b"3", b"{}"), (b"[1]", b"3"), (b"[1]", b"{1}")]
)
@pytest.mark.parametrize("function", [_sell, _sell_all], ids=["closed", "open"])
def test_arguments_have_to_be_a_list_and_an_object(function: Callable[..., Any], args: bytes, kwargs: bytes) -> None:
    with pytest.raises(InvalidArguments, match=r"shop.sell"):
        signature(function).decode(Raw(args), Raw(kwargs), JSON)


class _Explosive(BaseModel):
    fuse: int

    @field_validator("fuse")
    @classmethod
    def explode(cls, fuse: int) -> int:
        raise LookupError(f"boom - at `$[99]` {fuse}")

    @field_serializer("fuse")
    def explode_too(self, fuse: int) -> int:
        raise LookupError("boom")


@both_forms
@pytest.mark.parametrize("args", [((Reciprocal(1), {"of": 0})), ((Reciprocal(1),) * 2 + ({"of": 0},))])
def test_any_error_while_constructing_a_type_is_an_argument_error(content_type: str, args: tuple[Any, ...]) -> None:
    def take_closed(a: Reciprocal, b: Reciprocal, c: Reciprocal | None = None) -> None: ...
    def open_ended(a: Reciprocal, *b: Reciprocal) -> None: ...

    for function in (take_closed, open_ended):
        with pytest.raises(InvalidArguments, match=r"shop.sell: ZeroDivisionError: division by zero"):
            signature(function).encode(args, {}, content_type)


def test_a_set_of_unhashable_values_does_not_match() -> None:
    with pytest.raises(InvalidArguments, match=r"shop.sell: TypeError: .*unhashable type: 'list'"):
        signature(taking(set[Any])).decode(Raw(b"[[[]]]"), Raw(b"{}"), JSON)


def test_a_model_validator_may_raise_any_error_with_any_text() -> None:
    raw = Raw(b'[{"fuse": 1}]')

    with pytest.raises(InvalidArguments, match=r"shop.sell: LookupError: boom - at `\$\[99\]` 1"):
        signature(taking(_Explosive)).decode(raw, Raw(b"{}"), JSON)


def test_a_quoted_value_is_not_mistaken_for_the_location_of_the_error() -> None:
    args = Raw(encode_value([{"name": ["x - at `$[99].y`"]}], JSON))

    with pytest.raises(InvalidArguments, match=r"- at `value`$"):
        signature(taking(User)).decode(args, Raw(b"{}"), JSON)


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@both_forms
@pytest.mark.parametrize(
    "value",
    [object(), 3j, print, (n for n in "ab"), "\ud800", msgspec.UNSET, _circle(), {(1,): {1, 2j}}],
    ids=lambda value: type(value).__name__,
)
def test_an_unencodable_value_is_an_encode_error_that_names_the_task(content_type: str, value: Any) -> None:
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        with pytest.raises(EncodeError, match=r"^task shop.sell: ") as caught:
            signature(taking(Any)).encode(args, kwargs, content_type)

        assert type(caught.value) is EncodeError
        assert caught.value.__cause__ is not None


def test_messagepack_integers_have_at_most_64_bits() -> None:
    with pytest.raises(EncodeError, match=r"^task shop.sell: argument 'value': can't serialize ints"):
        signature(taking(int)).encode((2**64,), {}, MSGPACK)


def test_an_undumpable_model_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match=r"boom"):
        encode_value(_Explosive.model_construct(fuse=1), JSON)


def test_an_unencodable_result_names_its_type() -> None:
    class Odd:
        pass

    with pytest.raises(EncodeError, match=r"a value of type .*Odd cannot be encoded"):
        encode_value([Odd()], MSGPACK)


def test_an_unencodable_argument_is_named_unless_it_is_variadic() -> None:
    def sell(first: Any, *rest: Any) -> None: ...

    with pytest.raises(
        EncodeError, match=r"^task shop.sell: argument 'first': a value of type object cannot be encoded"
    ):
        signature(sell).encode((object(), 1), {}, JSON)
    with pytest.raises(EncodeError, match=r"^task shop.sell: argument 'rest\[0\]': a value of type object"):
        signature(sell).encode((1, object()), {}, JSON)
