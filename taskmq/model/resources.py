"""What tasks need of the machine that runs them, and what a worker has: amounts by name. Pure.

`cpu` counts processors, parts of one among them; `memory` and `storage` bytes; `gpu` whole devices. Every other name
is the user's own: licences, slots of a device, connections to a partner.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import parse_size, size_text

__all__ = ["GPU", "MEMORY", "PROCESS", "STORAGE", "Amounts", "Grant", "amounts_text", "parse_amounts", "read_amounts"]

Amounts = Mapping[str, float]
"""By name; `memory` and `storage` in bytes."""

GPU: Final = "gpu"
MEMORY: Final = "memory"
STORAGE: Final = "storage"
_SIZES: Final = frozenset({MEMORY, STORAGE})
PROCESS: Final = "a process"
"""What a run with `executor="process"` needs beside what it says; no name that a user can give."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


class Grant(msgspec.Struct, frozen=True):
    """What one run was given.

    Attributes:
        amounts: by name.
        devices: ids of its GPUs.
    """

    amounts: Amounts
    devices: tuple[str, ...] = ()


def read_amounts(value: object, *, what: str) -> dict[str, float]:
    """Amounts as code has them: `{"cpu": 2, "memory": "1G", "gpu": 1}`.

    Raises:
        InvalidOption: a name or an amount that cannot be; names `what`.
    """
    if not isinstance(value, Mapping) or not value:
        raise InvalidOption(
            f"{what}={value!r}: a mapping from names to amounts, such as {{'cpu': 2, 'memory': '1G'}}"
        )
    entries = cast("Mapping[object, Any]", value)
    return {_name(name, what): _amount(str(name), amount, what) for name, amount in entries.items()}


def parse_amounts(text: str, *, what: str) -> dict[str, float]:
    """Amounts as a command line has them: `cpu=8,memory=16G,gpu=2`; 0 for none of it.

    Raises:
        InvalidOption: a name or an amount that cannot be; names `what`.
    """
    amounts: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, amount = part.partition("=")
        if not sign or name in amounts:
            raise InvalidOption(f"{what} {text!r}: each name once, with its amount, such as cpu=8,memory=16G")
        if amount.strip() == "0":
            amounts[_name(name, what)] = 0.0
            continue
        amounts[_name(name, what)] = _amount(name, amount if name in _SIZES else _number(amount), what)
    return amounts


def amounts_text(amounts: Amounts) -> str:
    """For people: `cpu=2, memory=1G`."""
    return ", ".join(
        f"{name}={size_text(int(amount)) if name in _SIZES and amount else f'{amount:g}'}"
        for name, amount in amounts.items()
    )


def _name(name: object, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(f"{what}: {name!r} is no name of a resource: small letters, digits, '_', '.' and '-'")
    return name


def _amount(name: str, amount: object, what: str) -> float:
    if name in _SIZES:
        # JSON of other languages has no other numbers.
        size = int(amount) if isinstance(amount, float) and amount.is_integer() else amount
        return float(parse_size(size, what=f"{what}: {name}"))
    if isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount) and amount > 0:
        if name != GPU or amount == int(amount):
            return float(amount)
        raise InvalidOption(f"{what}: gpu={amount!r}: devices are handed out whole")
    raise InvalidOption(f"{what}: {name}={amount!r}: a number above 0")


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text
