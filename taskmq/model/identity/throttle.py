"""How long a login has to wait after others have failed, and when a credential's use is written down.

Failures are counted for the pair of name and address, for the name, and for the address. A client that guesses from
one place is stopped soon, and does not lock out the user, who comes from another. A user who has signed in from an
address within a month waits there for failures of the pair alone: others at the address do not lock them out, and
neither does a client elsewhere that guesses for their name.
"""

import hashlib
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from typing import Final, NamedTuple

__all__ = [
    "FORGET_AFTER_MS",
    "REMEMBER_MS",
    "ThrottleKey",
    "confirmation_key",
    "failures_at",
    "network_of",
    "throttle_keys",
    "touches",
    "wait_after",
]

FORGET_AFTER_MS: Final = 15 * 60 * 1000
"""Failures count for so long after the last of them."""
REMEMBER_MS: Final = 30 * 24 * 3600 * 1000
"""A user is known at an address for so long after the last sign-in there."""
_TOUCH_MS: Final = 60_000


class ThrottleKey(NamedTuple):
    """What failures are counted for.

    Attributes:
        key: a hash: what people type as their name may be their password.
        free: so many failures cost nothing.
        longest_ms: no wait is longer.
        first_ms: the wait after the first failure that costs something; it doubles with each further one.
        is_shared: others are counted for it as well, and a success of one takes back no more than its own count.
        known: the key of a success; within `REMEMBER_MS` of it failures are counted, and no login waits for them.
    """

    key: str
    free: int
    longest_ms: int
    is_shared: bool = False
    known: str = ""
    first_ms: int = 1000


def throttle_keys(name: str, address: str) -> tuple[ThrottleKey, ...]:
    """What a failed login of that name from that address counts for."""
    network = network_of(address)
    known = _hashed("known", name.casefold(), network)
    return (
        ThrottleKey(_hashed("pair", name.casefold(), network), 5, FORGET_AFTER_MS),
        ThrottleKey(_hashed("name", name.casefold()), 20, 60_000, known=known),
        ThrottleKey(_hashed("address", network), 50, 60_000, is_shared=True, known=known),
    )


def confirmation_key(credential: str) -> ThrottleKey:
    """Throttle key of wrong passwords given with a credential: the fifth within the time has to wait."""
    return ThrottleKey(_hashed("credential", credential), 4, FORGET_AFTER_MS, first_ms=FORGET_AFTER_MS)


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the network (/64), in which one client has as many as it wants."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except AddressValueError:
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def failures_at(failures: int, *, at: int, now: int) -> int:
    """How many of the failures count now, where `at` was the last of them (ms)."""
    return failures if now - at < FORGET_AFTER_MS else 0


def wait_after(key: ThrottleKey, failures: int) -> int:
    """Milliseconds from the last of so many failures until the next attempt."""
    if failures < key.free:
        return 0
    return min(key.first_ms << min(failures - key.free, 30), key.longest_ms)


def touches(last_used: int, now: int, *, idle_ms: int | None = None) -> bool:
    """Whether the use of a credential is written down: at most once a minute, more often where it ends sooner."""
    period = _TOUCH_MS if idle_ms is None else min(_TOUCH_MS, idle_ms // 2)
    return now - last_used >= period


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
