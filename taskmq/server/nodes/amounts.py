"""Resource amounts in requests."""

from collections.abc import Mapping

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.server.problems import Problem


def read_capacity(amounts: Mapping[str, float | str]) -> dict[str, float]:
    """Parse a node's capacity; 0 for resources it lacks.

    Raises:
        Problem: a name or an amount is invalid.
    """
    found = read_wanted(amounts)
    return found | {name: 0.0 for name in amounts if name not in found}


def read_wanted(amounts: Mapping[str, float | str]) -> dict[str, float]:
    """Parse requested amounts, without zeros.

    Raises:
        Problem: a name or an amount is invalid.
    """
    given = {name: amount for name, amount in amounts.items() if amount not in (0, "0", "")}
    try:
        return read_amounts(given, what="amounts") if given else {}
    except InvalidOption as error:
        raise Problem.about("capacity", str(error)) from error
