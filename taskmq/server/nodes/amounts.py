"""Amounts of resources as requests write them."""

from collections.abc import Mapping
from typing import Final

from taskmq.errors import InvalidOption
from taskmq.model.resources import MEMORY, STORAGE, read_amounts
from taskmq.server.problems import Problem

__all__ = ["read_capacity", "read_wanted"]

_SIZES: Final = frozenset({MEMORY, STORAGE})


def read_capacity(amounts: Mapping[str, float | str]) -> dict[str, float]:
    """What a node has; 0 for none of it.

    Raises:
        Problem: a name or an amount that cannot be.
    """
    found = read_wanted(amounts)
    return found | {name: 0.0 for name in amounts if name not in found}


def read_wanted(amounts: Mapping[str, float | str]) -> dict[str, float]:
    """What is asked for, without what is 0.

    Raises:
        Problem: a name or an amount that cannot be.
    """
    given = {name: _whole(name, amount) for name, amount in amounts.items() if amount not in (0, "0", "")}
    try:
        return read_amounts(given, what="amounts") if given else {}
    except InvalidOption as error:
        raise Problem.about("capacity", str(error)) from error


def _whole(name: str, amount: float | str) -> float | str:
    return int(amount) if name in _SIZES and isinstance(amount, float) else amount
