"""Pauses between attempts, which grow until one of them succeeds. Pure: randomness comes from the caller."""

from collections.abc import Callable

__all__ = ["Backoff", "backoff_pause"]


def backoff_pause(failures: int, *, first: float, longest: float, growth: float = 2.0) -> float:
    """Seconds to wait after so many failures in a row, from 1: `first`, then `growth` times the pause before.

    Args:
        first: above 0.
        longest: what no pause exceeds.
        growth: at least 1.
    """
    pause = first
    for _ in range(failures - 1):
        if pause >= longest or growth == 1:
            break
        pause *= growth
    return min(pause, longest)


class Backoff:
    """The pauses of one who tries again and again.

    Args:
        first: seconds of the first pause, above 0.
        longest: seconds that no pause exceeds.
        growth: how many times as long each pause is as the one before; at least 1.
        draw: makes the pause of the one that is due, at random, so that clients that failed together do not come back
            together; None takes it as it is. "Full jitter" draws from 0 to it (M. Brooker, Exponential Backoff And
            Jitter, 2015).

    Attributes:
        failures: how many pauses have been given since the last success.
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
        """Seconds to wait before the next attempt; the last one has failed."""
        self.failures += 1
        pause = backoff_pause(self.failures, first=self._first, longest=self._longest, growth=self._growth)
        return pause if self._draw is None else self._draw(pause)

    def reset(self) -> None:
        """The last attempt has succeeded."""
        self.failures = 0
