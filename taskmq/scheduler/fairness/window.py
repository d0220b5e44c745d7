"""How many jobs of a queue may be at the broker and with workers at a time. Pure.

Few, so that order, shares, changes and cancels are decided in the store up to the last moment; enough, so that no
worker waits for the next dispatch.
"""

from math import ceil, exp
from typing import Final

__all__ = ["FLOOR", "Window"]

FLOOR: Final = 64
"""The window of a queue of which no live worker is known."""

# Beside a job for each slot, so many that wait there: as many again, or what short runs need until the next dispatch.
# Each of them is one that no other may pass any more.
_WAITING: Final = 0.25
_WAITING_AT_LEAST: Final = 4
_UNTIL_NEXT: Final = 0.25
# Of what is there for short runs alone so much is used up before more is dispatched: small batches are what costs.
_USED_UP: Final = 0.5
# What jobs need that end at once: so many seconds of the present rate.
_SECONDS: Final = 0.05
_MEMORY: Final = 0.5
_INTERVAL: Final = 0.05


class Window:
    """Of one queue: its live worker slots and a quarter more, up to twice as many where runs are short; or what 50 ms
    of the present rate need. Times are seconds.
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._ended = 0
        self._since: float | None = None

    @property
    def rate(self) -> float:
        """Jobs that leave in a second."""
        return self._rate

    def ended(self, count: int, *, now: float) -> None:
        """So many more jobs have left."""
        self._roll(now)
        self._ended += count

    def size(self, slots: int | None, *, now: float) -> int:
        """How many jobs may be in flight.

        Args:
            slots: live worker slots; None: unknown.
        """
        self._roll(now)
        waiting = 0 if slots is None else min(slots, ceil(self._rate * _UNTIL_NEXT))
        return max(_least(slots), (slots or 0) + waiting, ceil(self._rate * _SECONDS))

    def room(self, slots: int | None, in_flight: int, *, now: float) -> int:
        """How many more jobs may be dispatched now.

        None while there are enough: where a window is larger because runs are short, it is filled again once half of
        that addition has ended.

        Args:
            slots: live worker slots; None: unknown.
            in_flight: how many jobs are.
        """
        size = self.size(slots, now=now)
        room = size - in_flight
        return room if room >= _USED_UP * (size - _least(slots)) else 0

    def _roll(self, now: float) -> None:
        if self._since is None:
            self._since = now
            return
        passed = now - self._since
        if passed < _INTERVAL:
            return
        kept = exp(-passed / _MEMORY)
        self._rate = self._rate * kept + self._ended / passed * (1 - kept)
        self._ended, self._since = 0, now


def _least(slots: int | None) -> int:
    """The size of a window whose runs are long."""
    if slots is None:
        return FLOOR
    return slots + min(slots, max(_WAITING_AT_LEAST, ceil(slots * _WAITING)))
