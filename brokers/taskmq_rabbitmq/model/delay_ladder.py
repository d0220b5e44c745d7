"""The delay ladder `taskmq.delay.v2`: queues in which messages wait until they are due. Pure.

It has 28 levels; the queue of level n holds a message for 125 ms * 2^n. A delay is written in units of 125 ms as 28
bits, and a message waits on each level whose bit is set, the lowest first. So its last wait is its longest one: when
many are due at once, each has one move left, and no other move delays it.

    enter --(>>3)--> l03 --TTL--> exchange l03 --(>3>5)--> l05 --TTL--> exchange l05 --(>5>)--> deliver --(Q)--> Q

All exchanges are direct ones. The routing key is the name of the message's queue. The ways from level to level are
further keys, in the header `CC`. RabbitMQ looks up each of the keys at every exchange, and each exchange knows only
those that begin with its own number, so exactly one matches. Ways lead up to `JUMP` levels on; across a larger gap a
message passes an exchange in between (`>3~`). Bindings with patterns would need no further keys, but cost more than
everything else that RabbitMQ does for the message.

The numbers are part of the version. In taskmq 0.1 the ladder was `v1`, with topic exchanges and the highest bit
first: messages that wait there are delivered as before, by its objects at the broker.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final, cast

LEVELS: Final = 28
UNIT_MS: Final = 125
MAX_DELAY_MS: Final = UNIT_MS * ((1 << LEVELS) - 1)
JUMP: Final = 4
"""Maximum of levels that one way spans. Each further one means some 25 more bindings, which workers declare again."""

_PREFIX: Final = "taskmq.delay.v2"
ENTER: Final = f"{_PREFIX}.enter"
DELIVER: Final = f"{_PREFIX}.deliver"
READY: Final = f"{_PREFIX}.ready"
WAYS: Final = "CC"
"""Header with further routing keys; RabbitMQ's own."""
WAY_MARK: Final = ">"
"""Prefix of each way; no queue of delayed messages begins with it."""

# Many messages share a delay.
_DELAYS: Final = 4096
_JOURNEY_V1: Final = re.compile(r"(?:[01]\.){28}(?P<queue>.+)", re.DOTALL)


def units(delay_ms: int) -> int:
    """Return the units that a message must wait: rounded up, so that it is never early; at most 2^28 - 1."""
    return min(max(0, -(-delay_ms // UNIT_MS)), (1 << LEVELS) - 1)


def ways(delay_ms: int) -> list[str]:
    """Return the keys for a wait of `delay_ms`: the header `WAYS` of a message published to `ENTER`.

    Args:
        delay_ms: more than 0; at most `MAX_DELAY_MS` counts.
    """
    return list(_ways(units(delay_ms)))


def destination(headers: Mapping[str | bytes, object], routing_key: str) -> str | None:
    """Return the queue of a message on the ladder; None if it was not published through the ladder."""
    found = headers.get(WAYS)
    if isinstance(found, list) and found:
        last = cast("list[object]", found)[-1]
        return routing_key if isinstance(last, str) and last.startswith(WAY_MARK) else None
    # For messages that wait on the ladder of earlier versions.
    journey = _JOURNEY_V1.fullmatch(routing_key)
    return None if journey is None else journey["queue"]


def level_name(level: int) -> str:
    """Return the name of both the exchange and the queue of a level."""
    return f"{_PREFIX}.l{level:02d}"


def level_ttl(level: int) -> int:
    """Return the milliseconds that a level's queue holds a message."""
    return UNIT_MS << level


def enter_key(level: int) -> str:
    """Return the key from `ENTER` to the queue of a message's first level."""
    return f">>{level}"


def jump_key(level: int, then: int) -> str:
    """Return the key from a level's exchange to the queue of the next level that a message waits on."""
    return f">{level}>{then}"


def pass_key(level: int) -> str:
    """Return the key from a level's exchange to the one that is `JUMP` levels on."""
    return f">{level}~"


def exit_key(level: int) -> str:
    """Return the key from the exchange of a message's last level to `DELIVER`."""
    return f">{level}>"


@lru_cache(_DELAYS)
def _ways(count: int) -> tuple[str, ...]:
    return tuple(_steps([level for level in range(count.bit_length()) if count >> level & 1]))


def _steps(levels: list[int]) -> Iterator[str]:
    yield enter_key(levels[0])
    for level, then in pairwise(levels):
        here = level
        while then - here > JUMP:
            yield pass_key(here)
            here += JUMP
        yield jump_key(here, then)
    yield exit_key(levels[-1])
