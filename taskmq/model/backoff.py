"""Pauses between attempts, which grow until an attempt succeeds. Pure: the caller supplies the randomness."""

from collections.abc import Callable


def backoff_pause(failures: int, *, first: float, longest: float, growth: float = 2.0) -> float:
    """Return the seconds to wait after this many failures in a row: `first`, then `growth` times the previous pause.

    Args:
        first: above 0.
        longest: upper bound of every pause.
        growth: at least 1.
    """
    pause = first
    for _ in range(failures - 1):
        if pause >= longest or growth == 1:
            break
        pause *= growth
    return min(pause, longest)


class Backoff:
    """Pauses of a client that retries until it succeeds.

    Args:
        first: seconds of the first pause, above 0.
        longest: upper bound of every pause, seconds.
        growth: factor from one pause to the next; at least 1.
        draw: randomizes a pause, so that clients that failed together do not retry together. None keeps it as
            computed. "Full jitter" draws from 0 to the pause (M. Brooker, Exponential Backoff And Jitter, 2015).

    Attributes:
        failures: number of pauses since the last success.
    """

    def __init__(
        self, first: float, longest: float, *, growth: float = 2.0, draw: Callable[[float], float] | None = None
    ) -> None:
        self.failures = 0
        self._first = first
        self._longest = longest
        self._growth = growth
        self._draw = draw

    def next(self) -> float:
        """Return the seconds to wait before the next attempt, after one that failed."""
        self.failures += 1
        pause = backoff_pause(self.failures, first=self._first, longest=self._longest, growth=self._growth)
        return pause if self._draw is None else self._draw(pause)

    def reset(self) -> None:
        """Start again with the first pause, after an attempt that succeeded."""
        self.failures = 0
