"""Keys made from arguments: parameters, templates, functions, and all arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, Depends, InvalidArguments, InvalidOption, TaskMQ
from taskmq.injection.plan import is_dependency
from taskmq.model.codec import Signature
from taskmq.options.keys import ArgumentKey
from tests.unit.app_kit import message, messages, new_url


@dataclass
class Shop:
    id: int
    region: str = "north"


class Size(Enum):
    SMALL = 1


def key_of(maker: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    signature = Signature(function, owner="pay", injected=Context)
    return ArgumentKey(maker, function, signature, owner="pay", option="idempotency_key").of(args, kwargs)


def pay(order: str, amount: int = 1) -> None: ...


def of_shop(context: Context, shop: Shop, parts: list[int] | None = None) -> None: ...


def of_anything(value: Any) -> None: ...


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("order:{order}", "order:7"),
        ("{order}/{amount}", "7/1"),
        ("{order:>4}", "   7"),
        ("{{{order}}}", "{7}"),
        ("{order}{order}", "77"),
    ],
)
def test_a_template_names_parameters_in_braces(template: str, key: str) -> None:
    assert key_of(template, pay, "7") == key
    assert key_of(template, pay, order="7") == key


def test_a_template_reads_attributes_and_items() -> None:
    assert key_of("{shop.region}/{shop.id}/{parts[1]}", of_shop, Shop(7), [1, 2]) == "north/7/2"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("ann", "k-ann"),
        (7, "k-7"),
        (UUID(int=1), "k-00000000-0000-0000-0000-000000000001"),
        (Size.SMALL, "k-1"),
        (date(2026, 1, 2), "k-2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "k-2026-01-02T03:00:00+00:00"),
    ],
)
def test_values_with_one_text_form_may_be_in_a_key(value: object, key: str) -> None:
    assert key_of("k-{value}", of_anything, value) == key
    assert key_of("value", of_anything, value) == key.removeprefix("k-")


@pytest.mark.parametrize(
    "value", [None, True, 1.5, b"ann", ["ann"], object(), Shop(1), "x" * 256], ids=lambda value: type(value).__name__
)
def test_values_with_several_text_forms_are_refused(value: object) -> None:
    with pytest.raises(InvalidArguments, match="task pay: idempotency_key"):
        key_of("k{value}", of_anything, value)


@pytest.mark.parametrize(
    ("maker", "words"),
    [
        ("nobody", "'nobody' is none of its parameters: order, amount"),
        ("{nobody}", "'nobody' is none of its parameters"),
        ("{nobody.id}", "'nobody.id' is none of its parameters"),
        ("{0}", "'0' is none of its parameters"),
        ("{}", "'' is none of its parameters"),
        ("{order", "expected"),
        ("}}", "the same for all calls"),
    ],
)
def test_a_template_that_matches_no_call_is_refused_at_definition(maker: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        key_of(maker, pay, "7")


def test_all_arguments_make_a_key_however_they_are_passed() -> None:
    assert key_of(True, pay, "7") == key_of(True, pay, order="7", amount=1)
    assert key_of(True, pay, "7") != key_of(True, pay, "7", 2)
    with pytest.raises(InvalidArguments):
        key_of(True, of_anything, object())


def plain_key_of(maker: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    signature = Signature(function, owner="pay", injected=Context)
    return ArgumentKey(maker, function, signature, owner="pay", option="concurrency: key").plain_of(args, kwargs)


@pytest.mark.parametrize(
    ("maker", "args", "kwargs", "key"),
    [
        ("order", ["7"], {}, "7"),
        ("order", [], {"order": "7"}, "7"),
        ("{order:>3}/{amount}", ["7"], {"amount": 3}, "  7/3"),
        ("{order}/{amount}", ["7"], {}, "7/1"),
    ],
)
def test_a_key_of_texts_and_integers_is_known_before_arguments_are_decoded(
    maker: str, args: list[Any], kwargs: dict[str, Any], key: str
) -> None:
    assert plain_key_of(maker, pay, *args, **kwargs) == key == key_of(maker, pay, *args, **kwargs)


@pytest.mark.parametrize(
    ("maker", "function", "args"),
    [
        (lambda order: order, pay, ["7"]),
        (True, pay, ["7"]),
        ("{shop.region}", of_shop, [{"id": 1}]),
        ("value", of_anything, ["7"]),
        ("order", pay, [7]),
        ("amount", pay, ["7", True]),
        ("amount", pay, ["7", None]),
        ("order", pay, ["x" * 256]),
        ("order", pay, []),
        ("order", pay, ["7", 1, 2]),
    ],
)
def test_any_other_key_requires_decoded_arguments(maker: Any, function: Callable[..., Any], args: list[Any]) -> None:
    assert plain_key_of(maker, function, *args) is None


def test_a_key_of_a_not_yet_known_type_requires_decoded_arguments_too() -> None:
    def later(order: "Later") -> None: ...  # type: ignore[name-defined]  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]

    assert plain_key_of("order", later, "7") is None  # pyright: ignore[reportUnknownArgumentType]


@given(st.text(max_size=30), st.integers(-9, 9), st.text(max_size=30), st.integers(-9, 9))
def test_different_arguments_have_different_keys(one: str, amount: int, other: str, another: int) -> None:
    is_same = (one, amount) == (other, another)
    assert (key_of(True, pay, one, amount) == key_of(True, pay, other, another)) is is_same


def test_a_provided_value_is_not_an_argument() -> None:
    def region() -> str:
        return "north"

    def take_provided(order: str, where: Annotated[str, Depends(region)]) -> None: ...

    signature = Signature(take_provided, owner="pay", injected=Context, is_provided=is_dependency)
    key = ArgumentKey("order", take_provided, signature, owner="pay", option="unique")
    assert key.of(("7",), {}) == "7"


def test_the_key_is_made_at_send_and_travels_in_the_envelope() -> None:
    app = TaskMQ(new_url())

    @app.task(idempotency_key="order:{order}")
    def buy(order: str) -> None: ...

    @app.task
    def plain(order: str) -> None: ...

    with app:
        buy.send("1")
        buy.send_many([("2",), {"order": "3"}])
        buy.options(idempotency_key="mine").send("4")
        plain.options(idempotency_key="mine").send("5")
        plain.send("6")

    keys = [each.envelope.key for each in messages(app)]
    assert keys == ["order:1", "order:2", "order:3", "mine", "mine", None]


def test_arguments_without_a_valid_key_are_refused_at_send() -> None:
    app = TaskMQ(new_url())

    @app.task(idempotency_key=lambda order: "")
    def buy(order: str) -> None: ...

    with app, pytest.raises(InvalidArguments, match="idempotency_key: '' must be a string"):
        buy.send("1")
    with pytest.raises(InvalidOption, match="idempotency_key"):
        buy.options(idempotency_key="")


def test_a_key_in_the_namespace_of_derived_ids_is_refused_at_send() -> None:
    app = TaskMQ(new_url())

    @app.task(idempotency_key="order")
    def buy(order: str) -> None: ...

    with app, pytest.raises(InvalidArguments, match="'taskmq:schedule:7' has a prefix reserved for keys"):
        buy.send("taskmq:schedule:7")


def test_a_unique_call_says_so_in_its_meta() -> None:
    app = TaskMQ(new_url())

    @app.task(name="buy", unique="order", meta={"who": "ann"})
    def buy(order: str) -> None: ...

    with app:
        buy.send("1")

    meta = message(app).envelope.meta or {}
    assert meta["who"] == "ann"
    assert meta["taskmq.unique"].endswith(" unique:buy:1")
