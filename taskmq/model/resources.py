"""Resources that tasks need and workers have: amounts by name. Pure.

`cpu` counts processors, fractions included; `memory` and `storage` count bytes; `gpu` counts whole devices. Every
other name is the user's own: licences, slots of a device, connections to a partner.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import parse_size, size_text

Amounts = Mapping[str, float]
"""Amounts by name; `memory` and `storage` in bytes."""

GPU: Final = "gpu"
MEMORY: Final = "memory"
STORAGE: Final = "storage"
_SIZES: Final = frozenset({MEMORY, STORAGE})
PROCESS: Final = "a process"
"""Implicit resource of runs with `executor="process"`; users cannot use the name."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


class Grant(msgspec.Struct, frozen=True):
    """Resources that one run was granted.

    Attributes:
        amounts: by name.
        devices: ids of its GPUs.
    """

    amounts: Amounts
    devices: tuple[str, ...] = ()


def read_amounts(value: object, *, what: str) -> dict[str, float]:
    """Read amounts from code: `{"cpu": 2, "memory": "1G", "gpu": 1}`.

    Raises:
        InvalidOption: a name or an amount is invalid; the message names `what`.
    """
    if not isinstance(value, Mapping) or not value:
        raise InvalidOption(
            f"{what}={value!r}: must be a mapping from names to amounts, such as {{'cpu': 2, 'memory': '1G'}}"
        )
    entries = cast("Mapping[object, Any]", value)
    return {_name(name, what): _amount(str(name), amount, what) for name, amount in entries.items()}


def parse_amounts(text: str, *, what: str) -> dict[str, float]:
    """Parse amounts from a command line: `cpu=8,memory=16G,gpu=2`; 0 means none.

    Raises:
        InvalidOption: a name or an amount is invalid; the message names `what`.
    """
    amounts: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, amount = part.partition("=")
        if not sign or name in amounts:
            raise InvalidOption(f"{what} {text!r}: give each name once with its amount, such as cpu=8,memory=16G")
        if amount.strip() == "0":
            amounts[_name(name, what)] = 0.0
            continue
        amounts[_name(name, what)] = _amount(name, amount if name in _SIZES else _number(amount), what)
    return amounts


def amounts_text(amounts: Amounts) -> str:
    """Return amounts as text: `cpu=2, memory=1G`."""
    return ", ".join(
        f"{name}={size_text(int(amount)) if name in _SIZES and amount else f'{amount:g}'}"
        for name, amount in amounts.items()
    )


def _name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(
            f"{what}: {name!r} is not the name of a resource: use lower-case letters, digits, '_', '.' and '-'"
        )
    return name


def _amount(name: str, amount: object, what: str) -> float:
    if name in _SIZES:
        # JSON encoders of other languages may write whole numbers as floats.
        size = int(amount) if isinstance(amount, float) and amount.is_integer() else amount
        return float(parse_size(size, what=f"{what}: {name}"))
    if isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount) and amount > 0:
        if name != GPU or amount == int(amount):
            return float(amount)
        raise InvalidOption(f"{what}: gpu={amount!r}: must be a whole number of devices")
    raise InvalidOption(f"{what}: {name}={amount!r}: must be a number above 0")


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text
