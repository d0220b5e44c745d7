"""Delays by a fixed table, `?delay=levels` in the URL: one queue with one TTL for each level. Pure.

A message waits in the longest level that is not above what is left, and then goes to its queue. Where that is
before its time, whoever consumes the queue sends it into the next level instead of handing it over (`reentry`).
So a delay that is a level costs one hop, and any other one several: 3.5 on average below 10 s, 5 below a minute, 8
below an hour, 10 below a day. The delay ladder takes about as many hops, but all of them inside the broker.

The table is 1, 2, 5, as far as minutes, hours and days allow: the delays that people write down are in it, and with
steps of two to three none is taken more than twice or thrice in a row. The shortest level is the precision: a message
waits up to 100 ms too long rather than to take one more hop, and never too short.

Between two levels a message is in its queue for a moment, or for as long as nobody consumes it: whoever counts, holds
or purges the queue then meets it there.

What leaves a level goes the same way as what leaves the ladder, with the same routing key; so queues are bound once,
and nothing is lost or strands when the URL is changed, or when senders and workers differ in it.
"""

from bisect import bisect_left
from typing import Final

from taskmq_rabbitmq import delay

__all__ = ["LEVELS", "PRECISION_MS", "READY", "level_name", "route"]

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_UNITS: Final = ((24 * _HOUR, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s"), (1, "ms"))
_PREFIX: Final = "taskmq.delay.levels.v1"

LEVELS: Final = (
    *(100, 200, 500),
    *(number * _SECOND for number in (1, 2, 5, 10, 20, 30)),
    *(number * _MINUTE for number in (1, 2, 5, 10, 30)),
    *(number * _HOUR for number in (1, 3, 6, 12, 24)),
)
"""Milliseconds, part of the version as the names are."""

PRECISION_MS: Final = LEVELS[0]
READY: Final = f"{_PREFIX}.ready"

_NO_MORE_DELAY: Final = "0." * delay.LEVELS


def route(delay_ms: int, queue: str) -> tuple[str, str]:
    """Exchange and routing key by which a message for `queue` waits `delay_ms`, or a part of it.

    Args:
        delay_ms: more than 0.
        queue: a physical queue that is bound for delivery.
    """
    return level_name(_longest_below(delay_ms + PRECISION_MS)), _NO_MORE_DELAY + queue


def level_name(ttl_ms: int) -> str:
    """What both the exchange and the queue of a level are called."""
    size, unit = next((size, unit) for size, unit in _UNITS if ttl_ms % size == 0)
    return f"{_PREFIX}.{ttl_ms // size}{unit}"


def _longest_below(limit_ms: int) -> int:
    return LEVELS[bisect_left(LEVELS, limit_ms) - 1]
