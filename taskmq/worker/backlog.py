"""What was delivered and waits for a slot, and which of it comes next. Pure.

Weighted round robin over the priority classes (deficit round robin of Shreedhar and Varghese, 1995, with
deliveries of equal cost): in each round a class may be picked as often as its weight says, the highest class
first; a class with nothing waiting gives its share away. A class that has waited longer than the starvation
limit gets a turn out of order, the one that has waited longest first; that is at most every fourth turn, so that
the weights still count where tasks are so slow that every class waits that long. Within a class, queues take turns.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from taskmq.broker import Delivery
from taskmq.topology import CLASSES, PriorityClass, WorkQueue

__all__ = ["WEIGHTS", "Backlog"]

WEIGHTS: Final[Mapping[PriorityClass, int]] = {"high": 16, "default": 4, "low": 1}
_REGULAR_TURNS: Final = 3


class Backlog:
    """Deliveries by class and queue.

    Args:
        queues: the queues that are consumed.
        starvation_limit: seconds after which a waiting class gets a turn, whatever the weights say.
    """

    def __init__(self, queues: Iterable[WorkQueue], *, starvation_limit: float = 30.0) -> None:
        self._limit = starvation_limit
        self._class_of: dict[str, PriorityClass] = {}
        self._waiting: dict[PriorityClass, deque[deque[Delivery]]] = {name: deque() for name in CLASSES}
        self._lanes: dict[str, deque[Delivery]] = {}
        self._credit: dict[PriorityClass, int] = dict(WEIGHTS)
        self._served: dict[PriorityClass, float] = dict.fromkeys(CLASSES, 0.0)
        self._regular_turns = _REGULAR_TURNS
        self._size = 0
        for queue in queues:
            for name, physical in zip(CLASSES, queue.physical, strict=True):
                self._class_of[physical] = name
                self._lanes[physical] = deque()

    def __len__(self) -> int:
        return self._size

    def put(self, delivery: Delivery, *, now: float) -> None:
        """Add a delivery; `now` is a monotonic time in seconds."""
        lane = self._lanes[delivery.queue]
        if not lane:
            name = self._class_of[delivery.queue]
            if not self._waiting[name]:
                self._served[name] = now
            self._waiting[name].append(lane)
        lane.append(delivery)
        self._size += 1

    def take(self, *, now: float) -> Delivery | None:
        """The next delivery to run; None when nothing waits."""
        if not self._size:
            return None
        name = self._starving(now) if self._regular_turns >= _REGULAR_TURNS else None
        self._regular_turns = 0 if name else self._regular_turns + 1
        name = name or self._due()
        lanes = self._waiting[name]
        lane = lanes.popleft()
        delivery = lane.popleft()
        if lane:
            lanes.append(lane)
        self._served[name] = now
        self._size -= 1
        return delivery

    def clear(self) -> list[Delivery]:
        """Everything that waits, taken out, each queue in its order."""
        rest = [delivery for lane in self._lanes.values() for delivery in lane]
        for lane in self._lanes.values():
            lane.clear()
        for lanes in self._waiting.values():
            lanes.clear()
        self._size = 0
        return rest

    def _starving(self, now: float) -> PriorityClass | None:
        waiting: list[PriorityClass] = [name for name in CLASSES if self._waiting[name]]
        longest = min(waiting, key=lambda name: self._served[name])
        return longest if now - self._served[longest] > self._limit else None

    def _due(self) -> PriorityClass:
        while True:
            for name in CLASSES:
                if self._waiting[name] and self._credit[name] > 0:
                    self._credit[name] -= 1
                    return name
            self._credit = dict(WEIGHTS)
