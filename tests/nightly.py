"""Parameters of tests that run nightly."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def nightly_except(stay: Collection[Any], values: Iterable[Any], mark: pytest.MarkDecorator) -> list[Any]:
    """Return the values as parameters of a test: those of `stay` run in the gate, the others have the mark.

    A value for several parameters is a tuple.
    """
    return [
        value if value in stay else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)
        for value in values
    ]
