"""Tasks whose runs are known to be short. Pure: instants are seconds of the caller's clock."""

from typing import Final

import msgspec

_SHORT_MS: Final = 10
# Of so many runs, one may take longer.
_ONE_IN: Final = 100
# Runs that have to be known. Beyond the second number, older runs count half.
_ENOUGH: Final = 100
_MEMORY: Final = 2_000
# Seconds for which jobs of a task travel alone after a worker has returned one of them.
_ALONE: Final = 10.0
_REMEMBERED: Final = 10_000


class _Runs(msgspec.Struct):
    """Runs of one task; `long` of the `count` took longer than 10 ms."""

    count: float = 0.0
    long: float = 0.0
    alone_until: float = float("-inf")


class ShortTasks:
    """Tasks of which 99 of 100 recent runs took at most 10 ms."""

    def __init__(self) -> None:
        self._runs: dict[str, _Runs] = {}

    def record_run(self, task: str, ms: int) -> None:
        """Record the duration of a run, in milliseconds."""
        runs = self._runs_of(task)
        runs.count += 1
        if ms > _SHORT_MS:
            runs.long += 1
        if runs.count >= _MEMORY:
            runs.count /= 2
            runs.long /= 2

    def record_return(self, task: str, *, now: float) -> None:
        """Record that a worker returned a job of the task without a run."""
        self._runs_of(task).alone_until = now + _ALONE

    def is_short(self, task: str, *, now: float) -> bool:
        """Return whether the task's runs are known to be short, and none of its jobs was returned lately."""
        runs = self._runs.get(task)
        return (
            runs is not None
            and runs.count >= _ENOUGH
            and runs.long * _ONE_IN <= runs.count
            and now >= runs.alone_until
        )

    def _runs_of(self, task: str) -> _Runs:
        if (runs := self._runs.get(task)) is None:
            if len(self._runs) >= _REMEMBERED:
                # The oldest entries are learned anew.
                del self._runs[next(iter(self._runs))]
            runs = self._runs[task] = _Runs()
        return runs
