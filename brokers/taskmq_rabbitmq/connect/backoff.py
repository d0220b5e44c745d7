"""When connections and channels are tried again."""

import random
from typing import Final

from taskmq.model.backoff import Backoff

__all__ = ["patience", "reconnect_backoff"]

_FIRST: Final = 0.2
# Not longer: a node that is back should have its workers back within five seconds, and a thousand clients that
# try every two seconds on the average are no load that a node could not bear.
_LONGEST: Final = 4.0
_LEAST_PATIENCE: Final = 3.0
_MOST_PATIENCE: Final = 30.0


def patience(lasted: float) -> float:
    """Seconds after which another attempt is begun beside those that have no answer, after `lasted` seconds of that.

    A request to a quorum queue that has no majority is answered as soon as it has one again, or only after half a
    minute. A quarter of `lasted`, because each attempt stays with the broker for so long.
    """
    return min(max(_LEAST_PATIENCE, lasted / 4), _MOST_PATIENCE)


def reconnect_backoff() -> Backoff:
    """Full jitter: each pause is drawn from 0 to a bound that doubles from 0.2 s to 4 s."""
    return Backoff(_FIRST, _LONGEST, draw=lambda bound: random.uniform(0, bound))
