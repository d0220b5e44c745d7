"""Pauses between attempts to open connections and channels."""

import random
from typing import Final

from taskmq.model.backoff import Backoff

_FIRST: Final = 0.2
# Not longer: workers should be back within five seconds of their node, and a thousand clients that retry every two
# seconds on average are no load for it.
_LONGEST: Final = 4.0
_LEAST_PATIENCE: Final = 3.0
_MOST_PATIENCE: Final = 30.0


def patience(lasted: float) -> float:
    """Return the seconds before another attempt is started in parallel, after `lasted` seconds without an answer.

    A request to a quorum queue without a majority is answered as soon as it has one again, or only after half a
    minute. It is a quarter of `lasted`, because each attempt stays at the broker for that long.
    """
    return min(max(_LEAST_PATIENCE, lasted / 4), _MOST_PATIENCE)


def reconnect_backoff() -> Backoff:
    """Create a backoff with full jitter: each pause is drawn from 0 to a bound that doubles from 0.2 s to 4 s."""
    return Backoff(_FIRST, _LONGEST, draw=lambda bound: random.uniform(0, bound))
