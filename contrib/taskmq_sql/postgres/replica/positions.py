"""Positions of the primary's log at known instants, from which the age of a standby follows."""

import math
from typing import NamedTuple


class _Seen(NamedTuple):
    """A position, and the first and the last instant (s) before which it was the primary's."""

    first: float
    last: float
    position: int


class Positions:
    """Positions of the primary's log, in bytes, with their instants in seconds.

    Args:
        reach: seconds after which a position is forgotten.
    """

    def __init__(self, *, reach: float) -> None:
        self._reach = reach
        self._seen: list[_Seen] = []

    def __bool__(self) -> bool:
        """Whether any position is known."""
        return bool(self._seen)

    def add(self, at: float, position: int) -> None:
        """Note that all that was visible at `at` is within `position`. Calls come in the order of their instants."""
        first = at
        if self._seen and position < self._seen[-1].position:
            # Another server is the primary by now.
            self._seen.clear()
        if self._seen and position == self._seen[-1].position:
            # The primary is idle: a standby at this position lacks nothing.
            first = self._seen.pop().first
        self._seen = [each for each in self._seen if each.last >= at - self._reach]
        self._seen.append(_Seen(first, at, position))

    def age(self, position: int, *, now: float) -> float:
        """Return by how many seconds a standby at `position` is out of date at most; infinite if that is unknown."""
        return next((now - each.last for each in reversed(self._seen) if each.position <= position), math.inf)

    def least_age(self, position: int, *, now: float) -> float:
        """Return by how many seconds a standby at `position` is out of date at least."""
        return next((now - each.first for each in self._seen if each.position > position), 0.0)
