from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from taskmq import Context, InvalidArguments, InvalidOption
from taskmq.model.codec import Signature
from taskmq.options.keys import OrderKey


class Region(StrEnum):
    NORTH = "north"


class Size(Enum):
    SMALL = 1
    ODD = None


def key_of(maker: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    signature = Signature(function, owner="pay", injected=Context)
    return OrderKey(maker, function, signature, owner="pay").of(args, kwargs)


def pay(customer: str, amount: int = 1) -> None: ...


def with_context(customer: str, context: Context, amount: int = 1) -> None: ...


def with_anything(customer: Any = "nobody") -> None: ...


def test_a_parameter_is_the_key_however_it_is_passed() -> None:
    assert key_of("customer", pay, "ann", 5) == "ann"
    assert key_of("customer", pay, amount=5, customer="ann") == "ann"
    assert key_of("amount", pay, "ann", 5) == "5"


def test_the_default_of_a_parameter_is_the_key_of_a_call_that_omits_it() -> None:
    assert key_of("customer", with_anything) == "nobody"
    assert key_of("amount", pay, "ann") == "1"


def test_a_context_is_not_an_argument_and_does_not_shift_the_others() -> None:
    assert key_of("customer", with_context, "ann", 5) == "ann"
    assert key_of("amount", with_context, "ann", 5) == "5"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("ann", "ann"),
        (7, "7"),
        (-1, "-1"),
        (UUID("6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77"), "6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77"),
        (Region.NORTH, "north"),
        (Size.SMALL, "1"),
    ],
)
def test_a_value_with_one_text_form_is_a_key(value: object, key: str) -> None:
    assert key_of("customer", with_anything, value) == key


@pytest.mark.parametrize("value", [None, True, 1.5, b"ann", ["ann"], "", "x" * 256, Size.ODD], ids=repr)
def test_a_value_with_several_text_forms_is_not_a_key(value: object) -> None:
    with pytest.raises(InvalidArguments, match="task pay: order_key"):
        key_of("customer", with_anything, value)


def test_a_function_computes_the_key_from_the_passed_arguments() -> None:
    def key(customer: str, amount: int = 3) -> str:
        return f"{customer}/{amount}"

    assert key_of(key, pay, "ann") == "ann/3"
    assert key_of(key, pay, "ann", amount=5) == "ann/5"
    assert key_of(key, with_context, "ann", 5) == "ann/5"


def test_a_key_function_that_fails_or_returns_no_key_is_named() -> None:
    for maker in (lambda _: 7, lambda _: "", lambda: "ann", lambda customer: customer["id"]):
        with pytest.raises(InvalidArguments, match="task pay: order_key"):
            key_of(maker, with_anything, "ann")


@pytest.mark.parametrize("name", ["client", "args", "kwargs"])
def test_an_unknown_parameter_is_refused_at_definition(name: str) -> None:
    def anything(customer: str, *args: int, **kwargs: int) -> None: ...

    with pytest.raises(InvalidOption, match=f"task pay: order_key='{name}'"):
        key_of(name, anything, "ann")
