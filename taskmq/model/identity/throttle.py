"""How long a login has to wait after others have failed.

Failures are counted for the pair of name and address, for the name, and for the address: somebody who guesses from
one place is stopped soon, and does not lock out the user, who comes from another.
"""

import hashlib
from typing import Final, NamedTuple

__all__ = ["FORGET_AFTER_MS", "ThrottleKey", "throttle_keys", "wait_after"]

FORGET_AFTER_MS: Final = 15 * 60 * 1000
"""Failures count for so long after the last of them."""


class ThrottleKey(NamedTuple):
    """What failures are counted for.

    Attributes:
        key: a hash: what people type as their name may be their password.
        free: so many failures cost nothing.
        longest_ms: no wait is longer.
    """

    key: str
    free: int
    longest_ms: int


def throttle_keys(name: str, address: str) -> tuple[ThrottleKey, ...]:
    """What a failed login of that name from that address counts for."""
    return (
        ThrottleKey(_hashed("pair", name.casefold(), address), 5, FORGET_AFTER_MS),
        ThrottleKey(_hashed("name", name.casefold()), 20, 60_000),
        ThrottleKey(_hashed("address", address), 50, FORGET_AFTER_MS),
    )


def wait_after(key: ThrottleKey, failures: int) -> int:
    """Milliseconds from the last of so many failures until the next attempt."""
    if failures < key.free:
        return 0
    return min(1000 << min(failures - key.free, 30), key.longest_ms)


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
