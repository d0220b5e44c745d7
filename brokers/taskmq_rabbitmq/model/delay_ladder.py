"""The delay ladder `taskmq.delay.v1`: where a message waits for its time. Pure.

28 levels; level n holds a message for 125 ms * 2^n. A delay is written in units of 125 ms as 28 bits, most
significant first, one word each in the routing key, before the name of the queue it is for. The topic exchange
of level n looks at its own bit only: a 1 parks the message in the level's queue, whose TTL then dead-letters it
to the level below; a 0 hands it on at once. What leaves level 0 goes to the delivery exchange, where each queue
is bound with 28 stars and its own name, so that names with dots neither collide nor swallow each other.

Both numbers are part of the version: other ones are another ladder, `v2`.
"""

import re
from typing import Final

__all__ = [
    "DELIVER",
    "LEVELS",
    "MAX_DELAY_MS",
    "READY",
    "UNIT_MS",
    "delivery_key",
    "destination",
    "level_name",
    "level_ttl",
    "park_key",
    "pass_key",
    "route",
    "units",
]

LEVELS: Final = 28
UNIT_MS: Final = 125
MAX_DELAY_MS: Final = UNIT_MS * ((1 << LEVELS) - 1)

_PREFIX: Final = "taskmq.delay.v1"
DELIVER: Final = f"{_PREFIX}.deliver"
READY: Final = f"{_PREFIX}.ready"
_JOURNEY: Final = re.compile(rf"(?:[01]\.){{{LEVELS}}}(?P<queue>.+)", re.DOTALL)


def units(delay_ms: int) -> int:
    """How many units a message has to wait: rounded up, so that it is never early; at most 2^28 - 1."""
    return min(max(0, -(-delay_ms // UNIT_MS)), (1 << LEVELS) - 1)


def route(delay_ms: int, queue: str) -> tuple[str, str]:
    """Exchange and routing key by which a message for `queue` waits `delay_ms`.

    Args:
        delay_ms: more than 0; what is above `MAX_DELAY_MS` waits that long.
        queue: a physical queue that is bound for delivery.
    """
    count = units(delay_ms)
    bits = ".".join(f"{count:0{LEVELS}b}")
    return level_name(count.bit_length() - 1), f"{bits}.{queue}"


def destination(routing_key: str) -> str | None:
    """The queue that a message on the ladder is for; None when it was not sent through the ladder."""
    journey = _JOURNEY.fullmatch(routing_key)
    return None if journey is None else journey["queue"]


def level_name(level: int) -> str:
    """What both the exchange and the queue of a level are called."""
    return f"{_PREFIX}.l{level:02d}"


def level_ttl(level: int) -> int:
    """Milliseconds that a level's queue holds a message."""
    return UNIT_MS << level


def park_key(level: int) -> str:
    """The binding from a level's exchange to its queue."""
    return "*." * (LEVELS - 1 - level) + "1.#"


def pass_key(level: int) -> str:
    """The binding from a level's exchange to the exchange below."""
    return "*." * (LEVELS - 1 - level) + "0.#"


def delivery_key(queue: str) -> str:
    """The binding from the delivery exchange to `queue`."""
    return "*." * LEVELS + queue
