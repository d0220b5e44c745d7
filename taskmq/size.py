"""Amounts of memory as people write them: "512M", "1.5G", or a number of bytes. Pure."""

import re
from typing import Final

from taskmq.errors import InvalidOption

__all__ = ["Size", "parse_size", "size_text"]

Size = int | str
"""Bytes, or a number with a unit of 1024: K, M, G or T, also as KB or KiB."""

_FORM: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(value: object, *, what: str) -> int:
    """The number of bytes; at least 1.

    Raises:
        InvalidOption: it is none; names `what`.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := _FORM.fullmatch(value)) is not None:
        unit: int = 1024 ** _POWERS.get((match[2] or "").upper(), 0)
        size = round(float(match[1]) * unit)
        if size > 0:
            return size
    raise InvalidOption(f"{what}={value!r}: a number of bytes above 0, or such as '512M' or '1.5G'")


def size_text(size: int) -> str:
    """For people: the largest unit that leaves a number of at least 1, such as "1.5G"."""
    for unit, power in reversed(_POWERS.items()):
        if size >= 1024**power:
            return f"{size / 1024**power:.4g}{unit}"
    return f"{size}B"
