"""What all worker processes of one supervisor have done, also those that have ended."""

from collections.abc import Iterable

from taskmq.metrics import Count

__all__ = ["Totals"]

Counts = dict[tuple[str, str], Count]


class Totals:
    """Adds up counts, so that no sum ever goes down when a process is replaced.

    What a killed process has done since its last report is in no sum.
    """

    def __init__(self) -> None:
        self._ended: Counts = {}

    def keep(self, counts: Iterable[Count]) -> None:
        """A process has ended with these."""
        _add(self._ended, counts)

    def sum(self, living: Iterable[Iterable[Count]]) -> list[Count]:
        """Those kept and those of the `living` processes."""
        total: Counts = {}
        for counts in (self._ended.values(), *living):
            _add(total, counts)
        return list(total.values())


def _add(total: Counts, counts: Iterable[Count]) -> None:
    for count in counts:
        key = (count.task, count.queue)
        if (there := total.get(key)) is None:
            there = total[key] = Count(*key)
        there.merge(count)
