"""Throttling of logins after failures, and of writes of a credential's last use.

Failures are counted by the pair of name and address, by name, and by address. A client that guesses from one address
is throttled soon, and does not lock out the user, who signs in from another. A user who signed in from an address
within a month waits there only for failures of the pair. So neither other users at the address nor a client elsewhere
that guesses for their name can lock them out.
"""

import hashlib
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from typing import Final, NamedTuple

FORGET_AFTER_MS: Final = 15 * 60 * 1000
"""Time after the last failure until which failures count."""
REMEMBER_MS: Final = 30 * 24 * 3600 * 1000
"""Time after the last sign-in until which an address is known for a user."""
_TOUCH_MS: Final = 60_000


class ThrottleKey(NamedTuple):
    """A key that failures are counted by.

    Attributes:
        key: a hash, because people may type their password as their name.
        free: number of failures without a wait.
        longest_ms: upper bound of the wait.
        first_ms: the first wait; it doubles with each further failure.
        is_shared: other logins count for the key, too, so a success subtracts only its own failures.
        known: key of a success; for `REMEMBER_MS` after it, failures are counted but no login waits for them.
    """

    key: str
    free: int
    longest_ms: int
    is_shared: bool = False
    known: str = ""
    first_ms: int = 1000


def throttle_keys(name: str, address: str) -> tuple[ThrottleKey, ...]:
    """Return the keys that a failed login of that name from that address counts for."""
    network = network_of(address)
    known = _hash("known", name.casefold(), network)
    return (
        ThrottleKey(_hash("pair", name.casefold(), network), 5, FORGET_AFTER_MS),
        ThrottleKey(_hash("name", name.casefold()), 20, 60_000, known=known),
        ThrottleKey(_hash("address", network), 50, 60_000, is_shared=True, known=known),
    )


def confirmation_key(credential: str) -> ThrottleKey:
    """Return the key of wrong passwords given with a credential: the fifth within the window must wait."""
    return ThrottleKey(_hash("credential", credential), 4, FORGET_AFTER_MS, first_ms=FORGET_AFTER_MS)


def network_of(address: str) -> str:
    """Return the unit that counts as one address: for IPv6 the /64 network, because one client has all of it."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except AddressValueError:
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def failures_at(failures: int, *, at: int, now: int) -> int:
    """Return how many of the failures count now, if `at` was the last of them (ms)."""
    return failures if now - at < FORGET_AFTER_MS else 0


def wait_after(key: ThrottleKey, failures: int) -> int:
    """Return milliseconds from the last of this many failures until the next attempt."""
    if failures < key.free:
        return 0
    return min(key.first_ms << min(failures - key.free, 30), key.longest_ms)


def touches(last_used: int, now: int, *, idle_ms: int | None = None) -> bool:
    """Return whether to write a credential's use: once a minute, or more often if it expires sooner."""
    period = _TOUCH_MS if idle_ms is None else min(_TOUCH_MS, idle_ms // 2)
    return now - last_used >= period


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
