"""Tests of a suite that one of its adapters runs at night."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from taskmq.testing.runner import Suite

_S = TypeVar("_S", bound=Suite)


def at_night(mark: pytest.MarkDecorator, *tests: str) -> Callable[[type[_S]], type[_S]]:
    """Mark inherited tests in one class; in the other subclasses of their suite they stay in the gate."""

    def mark_tests(cls: type[_S]) -> type[_S]:
        for name in tests:
            setattr(cls, name, mark(_copy(getattr(cls, name))))
        return cls

    return mark_tests


def names_of(*areas: type[Suite], but: str) -> Iterator[str]:
    """Yield the names of the tests in parts of a suite, except one."""
    for area in areas:
        yield from (name for name in dir(area) if name.startswith("test_") and name != but)


def _copy(test: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(test)
    def run(self: Any) -> None:
        test(self)

    return run
