"""Amounts of resources as requests write them."""

from collections.abc import Mapping

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.server.problems import Problem

__all__ = ["read_capacity", "read_wanted"]


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
    given = {name: amount for name, amount in amounts.items() if amount not in (0, "0", "")}
    try:
        return read_amounts(given, what="amounts") if given else {}
    except InvalidOption as error:
        raise Problem.about("capacity", str(error)) from error
