import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    NotRequired,
    Optional,
    TypedDict,
    Union,
    Unpack,
)
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta, Raw

from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.codec import Signature
from taskmq.model.envelope import JSON, MSGPACK, Envelope, decode_envelope, encode_envelope
from taskmq.model.values.parameters import Arguments
from taskmq.model.values.return_type import ReturnType
from taskmq.model.values.wire_form import decode_value, encode_value
from taskmq.run.context import Context
from tests.unit.model.codec_kit import (
    Address,
    Cat,
    Color,
    Dog,
    Level,
    Money,
    Path2D,
    Point,
    Reciprocal,
    T,
    Team,
    User,
    Version,
    both_forms,
    returning,
    round_trip,
    signature,
    taking,
)

_PARIS = timezone(timedelta(hours=2))
_VALUES: list[tuple[Any, Any]] = [
    (int, -7),
    (int, 2**63),
    (str, "grün \x00 \U0001f600"),
    (float, 1.5),
    (bool, True),
    (None, None),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"\x00\xff")),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (datetime, datetime(2024, 2, 29, 12, 30, 1, 999999, tzinfo=UTC)),
    (datetime, datetime(2024, 2, 29, 12, 30, tzinfo=_PARIS)),
    (datetime, datetime(2024, 2, 29, 12, 30)),  # noqa: DTZ001 - a naive one travels, too
    (date, date(2024, 2, 29)),
    (time, time(12, 30, 1)),
    (timedelta, timedelta(days=1, microseconds=1)),
    (Color, Color.BLUE),
    (Level, Level.HIGH),
    (Literal["a", "b", 3], 3),
    (tuple[int, str], (1, "x")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (list[int], [1, 2]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "one", -2: "two"}),
    (dict[UUID, list[int]], {UUID(int=7): [1]}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[str, dict[str, Point]], {"a": {"b": Point(1, 2.0)}}),
    (Optional[int], None),  # noqa: UP045 - the older form is what is tested
    (Optional[int], 3),  # noqa: UP045
    (Union[int, str], "x"),  # noqa: UP007
    (int | str | None, 3),
    (Annotated[int, Meta(gt=0)], 3),
    (Point, Point(1)),
    (Path2D, Path2D([Point(1), Point(2, 3.0)], {"end": Point(9)}, next=Path2D([]))),
    (list[Point | None], [Point(1), None]),
    (Money, Money(Decimal("9.99"), "USD")),
    (Cat | Dog, Dog(["sit"])),
    (list[Cat | Dog], [Cat(9), Dog([])]),
    (Address, {"street": "Main"}),
    (Address, {"street": "Main", "number": 3}),
    (Version, Version(3, 11)),
    (list[Version], [Version(3)]),
    (User, User(name="Ada", born=date(1815, 12, 10))),
    (User | None, None),
    (Optional[User], User(name="Ada")),  # noqa: UP045
    (list[User], [User(name="Ada"), User(name="Eve")]),
    (dict[str, User], {"a": User(name="Ada")}),
    (tuple[User, int], (User(name="Ada"), 3)),
    (Team, Team(lead=User(name="Ada"), members=[User(name="Eve")])),
    (Path, Path("a/b.txt")),
    (list[Path], [Path("a"), Path("/b")]),
    (object, {"a": [1, None, "x"]}),
    (object | None, [1]),
    (Any, {"a": [1, None, "x"]}),
    (T, 3),
]


@both_forms
@pytest.mark.parametrize(("kind", "value"), _VALUES, ids=str)
def test_a_value_of_an_annotated_type_survives_the_round_trip(content_type: str, kind: Any, value: Any) -> None:
    by_position = round_trip(content_type, taking(kind), value)
    by_name = round_trip(content_type, taking(kind), value=value)

    assert by_position == ((value,), {})
    assert by_name == ((), {"value": value})
    assert type(by_position[0][0]) is type(value)


@both_forms
@pytest.mark.parametrize(("kind", "value"), _VALUES, ids=str)
def test_a_result_of_an_annotated_type_survives_the_round_trip(content_type: str, kind: Any, value: Any) -> None:
    returns = signature(returning(kind)).return_type()

    assert returns.decode(encode_value(value, content_type), content_type) == value
    # The decoder is cached by content type.
    assert returns.decode(encode_value(value, content_type), content_type) == value


@both_forms
def test_values_without_annotation_travel_as_plain_data(content_type: str) -> None:
    def function(first, *rest, **more): ...  # type: ignore[no-untyped-def]

    assert round_trip(content_type, function, {"a": 1}, [2], key=None) == (({"a": 1}, [2]), {"key": None})


@both_forms
def test_an_omitted_argument_keeps_the_default_of_the_function(content_type: str) -> None:
    def function(
        a: int,
        b: Point = Point(1),  # noqa: B008 - a value
        *,
        c: datetime | None = None,
    ) -> None: ...

    assert round_trip(content_type, function, 1) == ((1,), {})
    assert round_trip(content_type, function, a=1) == ((), {"a": 1})
    assert round_trip(content_type, function, 1, c=None) == ((1,), {"c": None})


@both_forms
def test_a_default_may_differ_from_the_annotated_type(content_type: str) -> None:
    missing = object()

    def function(a: int = missing) -> None: ...  # type: ignore[assignment]

    assert round_trip(content_type, function) == ((), {})


@both_forms
def test_positional_only_and_keyword_only_parameters_keep_their_kind(content_type: str) -> None:
    def function(a: int, b: int = 0, /, c: int = 0, *, d: int, e: int = 0) -> None: ...

    assert round_trip(content_type, function, 1, 2, 3, d=4, e=5) == ((1, 2, 3), {"d": 4, "e": 5})
    assert round_trip(content_type, function, 1, d=4) == ((1,), {"d": 4})
    assert round_trip(content_type, function, 1, c=3, d=4) == ((1,), {"c": 3, "d": 4})


@both_forms
def test_variadic_arguments_each_have_the_annotated_type(content_type: str) -> None:
    def function(first: str, *rest: Point, last: Level = Level.LOW, **more: UUID) -> None: ...

    points = Point(1), Point(2)
    identity = UUID(int=7)

    assert round_trip(content_type, function, "a", *points, b=identity) == (("a", *points), {"b": identity})
    assert round_trip(content_type, function, first="a") == ((), {"first": "a"})
    assert round_trip(content_type, function, "a", last=Level.HIGH) == (("a",), {"last": Level.HIGH})


@both_forms
def test_a_variadic_keyword_may_share_the_name_of_a_positional_only_parameter(content_type: str) -> None:
    def function(a: int, /, **more: str) -> None: ...

    assert round_trip(content_type, function, 1, a="x") == ((1,), {"a": "x"})


@both_forms
def test_a_call_without_arguments_is_an_empty_object(content_type: str) -> None:
    def function() -> None: ...

    assert round_trip(content_type, function) == ((), {})


@both_forms
def test_encoded_arguments_fit_an_envelope_of_the_same_content_type(content_type: str) -> None:
    def function(a: int = 0, **more: int) -> None: ...

    typed = signature(function)
    calls: list[Arguments] = [((), {}), ((1,), {}), ((), {"b": 2}), ((1,), {"b": 2})]
    for call in calls:
        args, kwargs = typed.encode(*call, content_type)
        body = encode_envelope(Envelope(task="shop.sell", args=args, kwargs=kwargs), content_type)
        envelope = decode_envelope(body, content_type)

        assert typed.decode(envelope.args, envelope.kwargs, content_type) == call


def test_an_envelope_of_another_language_may_omit_args_and_kwargs() -> None:
    def function(a: int = 0, *, b: int = 0) -> None: ...

    typed = signature(function)
    for content_type, body in ((JSON, b'{"task": "t"}'), (MSGPACK, b"\x81\xa4task\xa1t")):
        envelope = decode_envelope(body, content_type)

        assert typed.decode(envelope.args, envelope.kwargs, content_type) == ((), {})


def test_a_missing_content_type_or_one_with_parameters_is_json() -> None:
    def function(a: int) -> None: ...

    for content_type in (None, "", "application/json; charset=utf-8"):
        assert signature(function).decode(Raw(b"[1]"), Raw(b"{}"), content_type) == ((1,), {})


def test_a_number_of_another_numeric_type_becomes_the_annotated_one() -> None:
    args, _ = signature(taking(float)).decode(Raw(b"[1]"), Raw(b"{}"), JSON)

    assert type(args[0]) is float


def test_an_integer_of_any_size_travels_as_json() -> None:
    assert round_trip(JSON, taking(int), -(2**200)) == ((-(2**200),), {})


# Mismatches


@both_forms
def test_a_value_without_a_known_type_is_decoded_as_plain_data(content_type: str) -> None:
    value = {"a": [1, 2.5, None, {"b": True}]}

    assert decode_value(encode_value(value, content_type), content_type) == value


def test_a_result_that_no_longer_matches_its_type_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match=r"the stored result does not match the task's return type: Expected `int`"):
        ReturnType(int).decode(b'"x"', JSON)
    with pytest.raises(EncodeError, match=r"division by zero"):
        ReturnType(Reciprocal).decode(b'{"of": 0}', JSON)


@pytest.mark.parametrize("kind", [None, inspect.Parameter.empty, Any, object])
def test_a_result_without_a_declared_type_is_plain_data(kind: Any) -> None:
    assert ReturnType(kind).decode(b'{"a": [1]}', JSON) == {"a": [1]}


class Plain:
    pass


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Plain, "is a Plain"),
        (list[dict[str, tuple[int, Plain]]], "is a Plain"),
        (Plain | None, "is a Plain"),
        (dict[Plain, int], "Plain"),
        (list[Context], "is a Context"),
        (complex, "is a complex"),
        (Callable[[], int], "is a Callable"),
        (type[int], "is a type"),
        (Cat | Point, "cannot be decoded"),
        (list[int] | set[int], "cannot be decoded"),
        (User | int, "cannot be decoded"),
        (User | Team, "cannot be decoded"),
        (3, "cannot be decoded"),
    ],
    ids=str,
)
def test_an_unencodable_type_is_refused_with_its_task_and_parameter(kind: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^task shop.sell: parameter 'value' .*{said}"):
        signature(taking(kind))
    with pytest.raises(InvalidOption, match=rf"^task shop.sell: the return type .*{said}.*result=False$"):
        signature(returning(kind)).return_type()


def test_an_unencodable_type_is_found_in_variadic_arguments_and_nested_types() -> None:
    @dataclass
    class Holder:
        plain: list[Plain]

    def rest(*rest: Plain) -> None: ...
    def more(**more: Plain) -> None: ...

    Holder.__annotations__["plain"] = list[Plain]
    for function, name in ((rest, "rest"), (more, "more"), (taking(Holder), "value")):
        with pytest.raises(InvalidOption, match=rf"parameter '{name}' is a Plain"):
            signature(function)


def test_a_recursive_type_is_checked_once() -> None:
    assert signature(taking(Path2D)).is_resolved


def test_a_function_that_never_returns_may_be_a_task() -> None:
    def function() -> NoReturn:
        raise SystemExit

    assert signature(function).return_type().decode(b"null", JSON) is None


def _takes_later(value: "Later") -> "Later":
    return value


_early = signature(_takes_later)
_was_resolved = _early.is_resolved


class Later(msgspec.Struct):
    a: int


@both_forms
def test_a_type_defined_later_is_resolved_on_first_use(content_type: str) -> None:
    typed = signature(_takes_later)

    assert not _was_resolved
    assert _early.decode(*_early.encode((Later(1),), {}, content_type), content_type) == ((Later(1),), {})
    assert _early.is_resolved
    assert typed.return_type().decode(b'{"a": 1}', JSON) == Later(1)


_USES: list[Callable[[Signature], object]] = [
    lambda typed: typed.encode((1,), {}, JSON),
    lambda typed: typed.decode(Raw(b"[1]"), Raw(b"{}"), JSON),
    lambda typed: typed.takes_context,
    lambda typed: typed.return_type(),
]


@pytest.mark.parametrize("use", _USES)
@pytest.mark.parametrize("annotation", ["Nowhere", "datetime.Nowhere", "inspect.Nowhere"])
def test_an_undefined_type_is_reported_on_first_use(annotation: str, use: Callable[[Signature], object]) -> None:
    typed = signature(taking(annotation))

    with pytest.raises(InvalidOption, match=r"shop.sell: an annotation cannot be resolved .*Nowhere.*import"):
        use(typed)


@pytest.mark.parametrize("annotation", ["int |", "1 + None"])
def test_an_invalid_annotation_is_refused_at_definition(annotation: str) -> None:
    with pytest.raises(InvalidOption, match=r"shop.sell: an annotation cannot be read"):
        signature(taking(annotation))


@both_forms
def test_a_callable_object_travels_by_its_call_signature(content_type: str) -> None:
    class Seller:
        def __call__(self, count: int, ctx: Context) -> int:
            return count

    function: Callable[..., Any] = Seller()

    assert round_trip(content_type, function, 3) == ((3,), {})
    assert signature(function).takes_context
    with pytest.raises(InvalidArguments, match=r"at `count`"):
        signature(function).encode(("x",), {}, content_type)


# Values that would change on the wire


@dataclass(frozen=True)
class _Deeper(Point):
    z: int = 0


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (float, float("nan"), "argument 'value': .*JSON has no NaN and no infinity: say None or a text"),
        (float | None, float("inf"), "argument 'value': .*JSON has no NaN and no infinity"),
        (list[float | None], [1.0, float("nan")], r"JSON has no NaN .* - at `\[1\]`"),
        (Any, {"a": [float("nan")]}, r"JSON has no NaN .* - at `\[...\]\[0\]`"),
        (Point, _Deeper(1), "argument 'value': it would change when encoded and decoded: it would arrive as a Point"),
        (Address, {"street": "Main", "floor": 3}, "its type has no 'floor', which would be left out"),
        (datetime, datetime(1890, 1, 1, tzinfo=timezone(timedelta(seconds=561))), r"value.astimezone\(UTC\)"),
        (time, time(1, tzinfo=timezone(timedelta(seconds=561))), "use one of whole minutes"),
        (Any, {1: 2}, "JSON has no keys but texts: annotate the type of the keys"),
    ],
    ids=str,
)
def test_an_argument_that_would_change_on_the_wire_is_refused_by_name(kind: Any, value: Any, words: str) -> None:
    typed = signature(taking(kind))

    for _ in range(2):
        for args, kwargs in (((value,), {}), ((), {"value": value})):
            with pytest.raises(EncodeError, match=rf"^task shop.sell: .*{words}"):
                typed.encode(args, kwargs, JSON)


def test_each_variadic_argument_is_refused_by_its_position() -> None:
    def sell(*rest: float | None, **more: float | None) -> None: ...

    with pytest.raises(EncodeError, match=r"argument 'rest\[1\]': it would change"):
        signature(sell).encode((1.0, float("nan")), {}, JSON)
    with pytest.raises(EncodeError, match=r"argument 'b': it would change"):
        signature(sell).encode((), {"a": None, "b": float("nan")}, JSON)
    with pytest.raises(EncodeError, match=r"^task shop.sell: 'utf-8' codec"):
        signature(sell).encode((), {"\ud800": 1.0}, JSON)
    with pytest.raises(InvalidArguments, match="too many arguments"):
        signature(taking(int)).encode((1, 2), {}, JSON)


def test_a_result_that_its_caller_cannot_read_is_unencodable() -> None:
    with pytest.raises(EncodeError, match=r"^it does not match the annotated type: Expected `int`, got `str`$"):
        ReturnType(int).encode("x", JSON)
    with pytest.raises(EncodeError, match=r"^it does not match the annotated type: .*`int`, got `str` - at `\[0\]`$"):
        ReturnType(list[int]).encode(["x"], JSON)
    with pytest.raises(EncodeError, match=r"^it does not match the annotated type: JSON has no NaN"):
        ReturnType(float).encode(float("nan"), JSON)
    with pytest.raises(EncodeError, match=r"^it would change when encoded and decoded: JSON has no NaN"):
        ReturnType(float | None).encode(float("nan"), JSON)
    with pytest.raises(EncodeError, match="it does not match the annotated type: ZeroDivisionError: "):
        ReturnType(_Failing).encode({"a": 1}, JSON)


@dataclass
class _Failing:
    a: int

    def __post_init__(self) -> None:
        raise ZeroDivisionError


@both_forms
def test_a_readable_result_is_encoded(content_type: str) -> None:
    for kind, value in [*_VALUES, (int, 3), (Any, None), (None, {"a": 1}), (inspect.Parameter.empty, "x")]:
        returns = ReturnType(kind)

        assert returns.decode(returns.encode(value, content_type), content_type) == value


def test_part_of_a_call_is_checked_against_its_parameters() -> None:
    def sell(first: str, count: int, share: float | None = None) -> None: ...

    typed = signature(sell)

    assert typed.encode_part((3, None), {}, JSON, before=1) == (Raw(b"[3,null]"), Raw(b"{}"))
    assert typed.encode_part((), {"count": 3}, JSON, before=1)[1] == Raw(b'{"count":3}')
    assert typed.encode_part(("x",), {}, JSON, before=None)[0] == Raw(b'["x"]')
    with pytest.raises(EncodeError, match="argument 'count': it does not match the annotated type"):
        typed.encode_part(("x",), {}, JSON, before=1)
    with pytest.raises(EncodeError, match="argument 'share': it would change when encoded and decoded"):
        typed.encode_part((), {"share": float("nan")}, JSON, before=2)
    with pytest.raises(EncodeError, match=r"JSON has no NaN"):
        typed.encode_part((float("nan"),), {}, JSON, before=None)


def test_a_call_has_one_canonical_form_however_it_was_written() -> None:
    def sell(tags: set[str], *, count: int = 0, **more: Any) -> None: ...

    typed = signature(sell)

    def form(*args: Any, **kwargs: Any) -> tuple[Raw, Raw]:
        return typed.canonical(args, kwargs, typed.encode(args, kwargs, JSON))

    assert form({"b", "a"}, z=1, b={"y": 1, "x": 2}, count=3) == (
        Raw(b'[["a","b"]]'),
        Raw(b'{"count":3,"b":{"x":2,"y":1},"z":1}'),
    )
    assert form({"a"}) == typed.encode(({"a"},), {}, JSON)
    kwargs = {"b": {"y": {2}, "x": 2}}
    kept = typed.canonical(({"a"},), kwargs, typed.encode(({"a"},), kwargs, JSON), keeps_keys=True)
    assert kept[1] == Raw(b'{"b":{"y":[2],"x":2}}')


# Further annotations


class _Options(TypedDict):
    count: int
    price: NotRequired[Money]


@both_forms
def test_the_keys_of_an_unpacked_typed_dict_are_parameters(content_type: str) -> None:
    def sell(item: str, **options: Unpack[_Options]) -> None: ...

    money = Money(Decimal("9.99"))

    assert round_trip(content_type, sell, "a", count=3) == (("a",), {"count": 3})
    assert round_trip(content_type, sell, "a", count=3, price=money) == (("a",), {"count": 3, "price": money})
    assert [each.name for each in signature(sell).parameters.named] == ["count", "price"]
    for kwargs, words in (
        ({}, "'count' is missing"),
        ({"count": "x"}, "Expected `int`, got `str` - at `count`"),
        ({"count": 1, "prize": 2}, "unknown field `prize`: did you mean 'price'"),
    ):
        with pytest.raises(InvalidArguments, match=words):
            signature(sell).encode(("a",), kwargs, content_type)
