"""Functions that take the context of their run."""

from collections.abc import Callable
from typing import (
    Annotated,
    Any,
    Optional,
)

import pytest
from msgspec import Raw

from taskmq.errors import EncodeError, InvalidArguments, InvalidOption
from taskmq.model.envelope import JSON
from taskmq.run.context import Context
from tests.unit.model.codec_kit import (
    both_forms,
    round_trip,
    signature,
    taking,
)


def _first(ctx: Context, a: int, b: int = 0) -> Any:
    return ctx, a, b


def _middle(a: int, ctx: Context, b: int = 0) -> Any:
    return ctx, a, b


def _last(a: int, b: int = 0, ctx: Context | None = None) -> Any:
    return ctx, a, b


def _call_by_names(a: int, b: int = 0, *, ctx: Context) -> Any:
    return ctx, a, b


def _optional(a: int, b: int = 0, *, ctx: Optional[Context] = None) -> Any:  # noqa: UP045
    return ctx, a, b


def _by_position(ctx: Context, a: int, /, b: int = 0) -> Any:
    return ctx, a, b


def _before_rest(a: int, ctx: Context, *b: int) -> Any:
    return ctx, a, *(b or (0,))


class _OwnContext(Context):
    pass


def _subclass(a: int, ctx: _OwnContext, b: int = 0) -> Any:
    return ctx, a, b


_PLACES: list[Callable[..., Any]] = [
    _first,
    _middle,
    _last,
    _call_by_names,
    _optional,
    _by_position,
    _before_rest,
    _subclass,
]


@both_forms
@pytest.mark.parametrize("function", _PLACES)
def test_the_context_is_passed_at_any_position(content_type: str, function: Callable[..., Any]) -> None:
    context = Context.create_detached("shop.sell")
    typed = signature(function)
    for sent in ((1,), (1, 2)):
        args, kwargs = typed.with_context(round_trip(content_type, function, *sent), context)

        assert function(*args, **kwargs) == (context, 1, (*sent, 0)[1])
    assert typed.takes_context


@pytest.mark.parametrize("function", [_first, _middle, _last, _call_by_names, _optional, _subclass])
def test_the_context_is_passed_beside_keyword_arguments(function: Callable[..., Any]) -> None:
    context = Context.create_detached("shop.sell")

    args, kwargs = signature(function).with_context(round_trip(JSON, function, a=1, b=2), context)

    assert function(*args, **kwargs) == (context, 1, 2)


def test_a_function_without_a_context_parameter_gets_none() -> None:
    typed = signature(taking(int))

    assert not typed.takes_context
    assert typed.with_context(((1,), {}), Context.create_detached("t")) == ((1,), {})


@pytest.mark.parametrize("function", [_last, _call_by_names, _before_rest])
def test_a_sender_cannot_pass_the_context(function: Callable[..., Any]) -> None:
    def open_ended(a: int, ctx: Context, **more: Any) -> None: ...

    with pytest.raises(EncodeError, match=r"shop.sell"):
        signature(function).encode((1,), {"ctx": Context.create_detached("t")}, JSON)
    with pytest.raises(InvalidArguments, match=r"ctx"):
        signature(function).decode(Raw(b"[1]"), Raw(b'{"ctx": {}}'), JSON)
    with pytest.raises(InvalidArguments, match=r"'ctx' is filled in by the worker"):
        signature(open_ended).decode(Raw(b"[1]"), Raw(b'{"ctx": {}}'), JSON)


def test_a_function_has_at_most_one_context() -> None:
    def function(one: Context, two: Context) -> None: ...

    with pytest.raises(InvalidOption, match=r"shop.sell: only one parameter can be a Context"):
        signature(function)


def test_variadic_contexts_are_refused() -> None:
    def by_position(*contexts: Context) -> None: ...
    def by_name(**contexts: Context) -> None: ...

    with pytest.raises(InvalidOption, match=r"shop.sell: \*contexts"):
        signature(by_position)
    with pytest.raises(InvalidOption, match=r"shop.sell: \*\*contexts"):
        signature(by_name)


def test_a_context_that_cannot_be_passed_by_position_is_refused() -> None:
    def function(a: int = 0, ctx: Context | None = None, /) -> None: ...

    with pytest.raises(InvalidOption, match=r"shop.sell: 'ctx' is passed by position"):
        signature(function)


@both_forms
def test_the_context_may_have_further_annotations(content_type: str) -> None:
    def first(ctx: Annotated[Context, "x"], a: int) -> Any:
        return ctx, a

    def optional(a: int, *, ctx: Annotated[Context | None, "x"] = None) -> Any:
        return ctx, a

    def inner(a: int, ctx: Annotated[Context, "x"] | None = None) -> Any:
        return ctx, a

    context = Context.create_detached("shop.sell")
    for function in (first, optional, inner):
        typed = signature(function)
        args, kwargs = typed.with_context(round_trip(content_type, function, 1), context)

        assert function(*args, **kwargs) == (context, 1)
        assert typed.takes_context
