"""Whose turn it is in the queues of one slot. Pure.

    queue -> priority class (high, default, low: 60 / 30 / 10 turns of a hundred) -> tenants by turns -> lane

A class that has no jobs leaves its turns to the others, and no class is ever without: nothing starves behind a flood
of higher ones. Within a class each tenant that has jobs gets one turn after the other, whatever the others have
queued; of its own jobs those of higher priority go first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from taskmq.contracts.jobs import Lane, Pick
from taskmq.model.topology import CLASSES, PriorityClass, class_of

__all__ = ["WEIGHTS", "Shares"]

WEIGHTS: Final[Mapping[PriorityClass, int]] = MappingProxyType({"high": 60, "default": 30, "low": 10})
"""Turns of each class, of a hundred, as long as all have jobs."""

_Turns = OrderedDict[str, list[Lane]]


class Shares:
    """Deals out turns among the lanes that have jobs."""

    def __init__(self, weights: Mapping[PriorityClass, int] = WEIGHTS) -> None:
        self._weights = weights
        self._queues: OrderedDict[str, _QueueTurns] = OrderedDict()

    def __len__(self) -> int:
        """How many queues have jobs, as far as is known here."""
        return len(self._queues)

    def refresh(self, lanes: Iterable[Lane]) -> None:
        """These are the lanes that have jobs. Who was there before keeps the place in its row."""
        by_queue: dict[str, list[Lane]] = {}
        for lane in lanes:
            by_queue.setdefault(lane.queue, []).append(lane)
        for gone in self._queues.keys() - by_queue.keys():
            del self._queues[gone]
        for queue, its in by_queue.items():
            if queue not in self._queues:
                self._queues[queue] = _QueueTurns(self._weights)
            self._queues[queue].refresh(its)

    def exhausted(self, lane: Lane) -> None:
        """The lane had fewer jobs than were picked: nobody waits for it until the next refresh."""
        turns = self._queues.get(lane.queue)
        if turns is not None and turns.remove(lane):
            del self._queues[lane.queue]

    def picks(self, room: Callable[[str], int], *, limit: int) -> list[Pick]:
        """Up to `limit` jobs, of each queue at most as many as it has room for.

        The queues take turns at being the first, so that none of them uses up the limit of all.
        """
        found: list[Pick] = []
        for queue, turns in self._queues.items():
            if (count := min(room(queue), limit)) > 0:
                limit -= count
                found += turns.picks(count)
        if found:
            self._queues.move_to_end(found[0].lane.queue)
        return found


class _QueueTurns:
    def __init__(self, weights: Mapping[PriorityClass, int]) -> None:
        self._weights = weights
        self._classes: dict[PriorityClass, _Turns] = {name: OrderedDict[str, list[Lane]]() for name in CLASSES}
        self._credit: dict[PriorityClass, int] = dict.fromkeys(CLASSES, 0)

    def refresh(self, lanes: Iterable[Lane]) -> None:
        fresh: dict[PriorityClass, dict[str, list[Lane]]] = {name: {} for name in CLASSES}
        for lane in sorted(lanes, key=_highest_first):
            fresh[class_of(lane.priority)].setdefault(lane.tenant, []).append(lane)
        for name, tenants in fresh.items():
            turns = self._classes[name]
            for gone in turns.keys() - tenants.keys():
                del turns[gone]
            # An update leaves those that are there in their places, and puts the others behind them.
            turns.update(tenants)
            self._forfeit(name)

    def remove(self, lane: Lane) -> bool:
        """Whether nothing is left."""
        name = class_of(lane.priority)
        turns = self._classes[name]
        lanes = turns.get(lane.tenant, [])
        if lane in lanes:
            lanes.remove(lane)
        if not lanes:
            turns.pop(lane.tenant, None)
        self._forfeit(name)
        return not any(self._classes.values())

    def picks(self, count: int) -> list[Pick]:
        counts: dict[Lane, int] = {}
        there: list[PriorityClass] = [name for name, turns in self._classes.items() if turns]
        if len(there) == 1 and len(self._classes[there[0]]) == 1:
            # One tenant alone needs no turns.
            (lanes,) = self._classes[there[0]].values()
            return [Pick(lanes[0], count)]
        for _ in range(count):
            turns = self._classes[self._next_class(there)]
            tenant, lanes = next(iter(turns.items()))
            turns.move_to_end(tenant)
            counts[lanes[0]] = counts.get(lanes[0], 0) + 1
        return [Pick(lane, number) for lane, number in counts.items()]

    def _next_class(self, there: list[PriorityClass]) -> PriorityClass:
        """By smooth weighted turns: each is paid its weight, who has the most goes and pays for all."""
        for name in there:
            self._credit[name] += self._weights[name]
        chosen = max(there, key=self._credit.__getitem__)
        self._credit[chosen] -= sum(self._weights[name] for name in there)
        return chosen

    def _forfeit(self, name: PriorityClass) -> None:
        """A class without jobs saves up no turns."""
        if not self._classes[name]:
            self._credit[name] = 0


def _highest_first(lane: Lane) -> int:
    return -lane.priority
