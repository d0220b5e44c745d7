"""Number of worker processes, scaled with the load. Pure.

The measure is demand, in processes: how many would be fully busy with the present work, in slots or in processor
time, whichever is more. There are enough while each is at most `_FULL` busy. A backlog that takes longer than
`_PATIENCE` to work off doubles the demand.

Scaling up goes to the needed number immediately, at most doubling, and then waits until the new processes consume.
Scaling down removes one process at a time, only after a whole `calm` in which one process less would have been at
most `_EASY` busy. Between the two thresholds nothing changes, which prevents flapping under a constant load. If one
less proves too few, because it has to be undone soon after, the next `calm` is twice as long, up to `_LONGEST_CALM`.
"""

import math
from typing import Final

import msgspec

_FULL: Final = 0.8
_EASY: Final = 0.6
_BUSY: Final = 0.5
_PATIENCE: Final = 10.0
_LONGEST_CALM: Final = 3600.0
# Seconds after which a process that does not consume is no longer waited for: it may crash all the time.
_STARTING: Final = 60.0
# Sums of fractions such as 0.8 * 5 are not exact.
_ROUNDING: Final = 1e-9


class Load(msgspec.Struct, frozen=True):
    """Load of the consuming processes at one moment.

    Attributes:
        at: seconds, by a clock that does not jump.
        processes: number of consuming processes, without paused ones.
        slots: number of their slots.
        busy: number of occupied slots.
        cpu: cores that they use together.
        rate: ended runs a second, over the last seconds.
        backlog: waiting messages in their queues; None if unknown.
        paused: number of processes that an operator paused.
    """

    at: float
    processes: int
    slots: int
    busy: int
    cpu: float
    rate: float
    backlog: int | None
    paused: int = 0

    @property
    def demand(self) -> float:
        """Number of processes that would be fully busy."""
        if not self.processes or not self.slots:
            return 0.0
        return max(self.busy / self.slots * self.processes, self.cpu)

    @property
    def is_behind(self) -> bool:
        """Whether the backlog takes long although the processes are busy."""
        if not self.backlog or self.demand < _BUSY * self.processes:
            # Idle processes next to a backlog: something holds it back that more processes would not change.
            return False
        return self.rate <= 0 or self.backlog / self.rate > _PATIENCE


class Autoscale:
    """Decides on the number of processes, check by check.

    Args:
        least, most: bounds of the number.
        calm: seconds of low load before one process is removed.
    """

    def __init__(self, *, least: int, most: int, calm: float = 60.0) -> None:
        self.least = least
        self.most = most
        self._calm = calm
        self._patience = calm
        self._easy_since: float | None = None
        self._down_at: float | None = None
        self._up_at = -math.inf
        self.wanted = least

    def look(self, load: Load) -> int:
        """Return the number of processes from now on."""
        wanted = self.wanted
        if load.processes + load.paused < wanted and load.at - self._up_at < _STARTING:
            # Starting processes will take their share.
            self._easy_since = None
            return wanted
        needed = self._needed_processes(load)
        if needed > wanted:
            self._easy_since = None
            self._go_up(load.at, needed)
        elif load.processes >= wanted > self.least and load.demand <= _EASY * (wanted - 1) and not load.is_behind:
            self._stay_easy(load.at)
        else:
            self._easy_since = None
        return self.wanted

    def dismiss(self) -> None:
        """Lower the number by a process that was dismissed for good."""
        self.most = max(self.most - 1, 0)
        self.least = min(self.least, self.most)
        self.wanted = max(self.wanted - 1, self.least)

    def _needed_processes(self, load: Load) -> int:
        needed = math.ceil(load.demand / _FULL - _ROUNDING)
        if load.is_behind:
            needed = max(needed, math.ceil(2 * load.demand - _ROUNDING))
        return max(self.least, min(needed + load.paused, self.most, 2 * self.wanted))

    def _go_up(self, at: float, needed: int) -> None:
        if self._down_at is not None:
            if at - self._down_at < 2 * self._patience:
                self._patience = min(2 * self._patience, _LONGEST_CALM)
            else:
                self._patience = self._calm
            self._down_at = None
        self._up_at = at
        self.wanted = needed

    def _stay_easy(self, at: float) -> None:
        if self._easy_since is None:
            self._easy_since = at
        elif at - self._easy_since >= self._patience:
            self.wanted -= 1
            self._down_at = at
            self._easy_since = None
