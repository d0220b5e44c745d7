"""Backlog: deliveries that wait for a slot, and the choice of the next one. Pure.

Weighted round robin over the priority classes (deficit round robin of Shreedhar and Varghese, 1995, with deliveries
of equal cost). In each round a class may be picked as often as its weight says, the highest class first; an empty
class gives its share away. A class that has waited longer than the starvation limit gets a turn out of order, the
longest-waiting first. That is at most every fourth turn, so that weights still count when tasks are so slow that
every class waits that long. Within a class, queues take turns, each with as many deliveries in a row as its share.
Queues without priority classes belong to the medium class, and so do lanes, except the slow one, which belongs to the
low class.

Of a shard of an ordered queue one delivery is out at a time: the next one waits until the shard is released. A queue
with a limit has at most that many deliveries in slots.

While jobs of the high class keep arriving, the other classes together get all slots but one, so that a high job does
not wait for the end of their long jobs. While jobs keep arriving in lanes, the slow lane leaves a slot free for them
in the same way, unless it is its turn while they wait.
"""

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq.model.topology import CLASSES, PriorityClass, WorkQueue, is_jobs_queue, is_shard, slow_lane

WEIGHTS: Final[Mapping[PriorityClass, int]] = {"high": 16, "medium": 4, "low": 1}
_REGULAR_TURNS: Final = 3
_KEPT_SECONDS: Final = 300.0
# With fewer slots, the other classes would miss one that is reserved.
_SLOTS_TO_KEEP_ONE: Final = 4
_NO_NUMBERS: Final[Mapping[str, int]] = {}


class Backlog:
    """Deliveries by class and queue. Instants are of a monotonic clock, in seconds.

    Args:
        queues: the queues that are consumed.
        slots: maximum of deliveries out at a time, which the taker must enforce; 0: no slot is reserved.
        weights: of the classes; each at least 1.
        strict: a class starts nothing while a higher one waits; lower ones may starve.
        starvation_limit: seconds after which a waiting class gets a turn, whatever the weights say.
        limits: maximum of slots for a queue's deliveries.
        shares: number of a queue's deliveries that start in a row; default 1.
    """

    def __init__(
        self,
        queues: Iterable[WorkQueue],
        *,
        slots: int = 0,
        weights: Mapping[PriorityClass, int] = WEIGHTS,
        strict: bool = False,
        starvation_limit: float = 30.0,
        limits: Mapping[str, int] = _NO_NUMBERS,
        shares: Mapping[str, int] = _NO_NUMBERS,
    ) -> None:
        self._weights = weights
        self._strict = strict
        self._limit = starvation_limit
        self._class_of: dict[str, PriorityClass] = {}
        self._waiting: dict[PriorityClass, deque[deque[Delivery]]] = {name: deque() for name in CLASSES}
        self._lanes: dict[str, deque[Delivery]] = {}
        self._is_out: dict[str, bool] = {}
        self._credit: dict[PriorityClass, int] = dict(weights)
        self._served: dict[PriorityClass, float] = dict.fromkeys(CLASSES, 0.0)
        self._regular_turns = _REGULAR_TURNS
        self._others_slots: int | None = None
        self._rooms: dict[str, _QueueRoom] = {}
        self._shares: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._others_out = 0
        self._kept_until = self._kept_for_lanes_until = float("-inf")
        # Lanes, and the queue itself with them.
        self._spread: set[str] = set()
        self._size = 0
        for queue in queues:
            for name, physical in _classes(queue):
                self._class_of[physical] = name
                self._lanes[physical] = deque()
                if is_shard(physical):
                    self._is_out[physical] = False
                elif queue.lanes is not None and name == "medium":
                    self._spread.add(physical)
            if (share := shares.get(queue.name, 1)) > 1:
                self._shares |= dict.fromkeys(queue.physical, share)
            if (most := limits.get(queue.name)) is not None:
                room = _QueueRoom(most, queue.physical)
                self._rooms |= dict.fromkeys(queue.physical, room)
        self._lines = tuple(self._waiting[name] for name in CLASSES)
        self._is_plain = not (self._rooms or self._shares or self._is_out)
        self.resize(slots)

    def resize(self, slots: int) -> None:
        """Set the number of slots."""
        self._others_slots = slots - 1 if slots >= _SLOTS_TO_KEEP_ONE else None

    def __len__(self) -> int:
        return self._size

    def put(self, *deliveries: Delivery, now: float, first: bool = False) -> None:
        """Add deliveries of one queue, after its others or, as `first`, before them."""
        queue = deliveries[0].queue
        lane = self._lanes[queue]
        if self._class_of[queue] == "high":
            self._kept_until = now + _KEPT_SECONDS
        elif queue in self._spread:
            self._kept_for_lanes_until = now + _KEPT_SECONDS
        if not lane and not self._is_out.get(queue) and not self._is_shut(queue):
            self._line_up(queue, now)
        if first:
            lane.extendleft(reversed(deliveries))
        else:
            lane.extend(deliveries)
        self._size += len(deliveries)

    def take(self, *, now: float) -> Delivery | None:
        """Return the next delivery to run; None if nothing waits, or nothing that waits may start yet."""
        if not self._size:
            return None
        if self._is_plain and now >= self._kept_until:
            high, medium, low = self._lines
            if medium and not high and not low:
                return self._take_alone(medium, now)
        waiting: list[PriorityClass] = [name for name in CLASSES if self._waiting[name]]
        if not waiting:
            return None
        is_last_slot = self._others_slots is not None and self._others_out >= self._others_slots
        if is_last_slot and now < self._kept_until:
            if waiting[0] != "high":
                return None
            name = self._take_reserved()
        elif is_last_slot and waiting[0] == "low" and now < self._kept_for_lanes_until:
            return None
        else:
            name = self._next_class(waiting, now)
        lanes = self._waiting[name]
        lane = lanes.popleft()
        delivery = lane.popleft()
        if delivery.queue in self._is_out:
            self._is_out[delivery.queue] = True
        elif lane:
            if self._shares and self._has_another_turn(delivery.queue):
                lanes.appendleft(lane)
            else:
                lanes.append(lane)
        self._served[name] = now
        self._size -= 1
        self.enter(delivery.queue)
        return delivery

    def _take_alone(self, lanes: deque[deque[Delivery]], now: float) -> Delivery:
        # Shares count only while another class waits, so skipping them here changes nothing later.
        lane = lanes[0]
        delivery = lane.popleft()
        if not lane:
            lanes.popleft()
        elif len(lanes) > 1:
            lanes.rotate(-1)
        self._served["medium"] = now
        self._size -= 1
        self._others_out += 1
        return delivery

    def _has_another_turn(self, queue: str) -> bool:
        left = self._turns.pop(queue, self._shares.get(queue, 1)) - 1
        if left > 0:
            self._turns[queue] = left
        return left > 0

    def enter(self, queue: str) -> None:
        """Count a slot for a delivery of the queue: one that was taken, or that had no slot for a while."""
        self._others_out += self._class_of[queue] != "high"
        if (room := self._rooms.get(queue)) is not None:
            room.out += 1
            if room.out == room.most:
                for other in room.queues:
                    _remove(self._waiting[self._class_of[other]], self._lanes[other])

    def leave(self, queue: str, *, now: float) -> None:
        """Free the slot of a taken delivery."""
        self._others_out -= self._class_of[queue] != "high"
        if self._rooms and (room := self._rooms.get(queue)) is not None:
            room.out -= 1
            if room.out == room.most - 1:
                for other in room.queues:
                    if self._lanes[other] and not self._is_out.get(other):
                        self._line_up(other, now)

    def shed(self, queue: str, *, keep: int) -> list[Delivery]:
        """Remove and return the deliveries of a physical queue beyond the first `keep`, in order."""
        lane = self._lanes[queue]
        surplus = [lane.pop() for _ in range(len(lane) - keep)]
        self._size -= len(surplus)
        if not lane:
            _remove(self._waiting[self._class_of[queue]], lane)
        return surplus[::-1]

    def deliveries(self) -> Iterator[Delivery]:
        """Yield every delivery that waits."""
        return itertools.chain.from_iterable(self._lanes.values())

    def retract(self, unwanted: Collection[Delivery]) -> list[Delivery]:
        """Remove and return those of these deliveries that wait, each queue in order."""
        taken: list[Delivery] = []
        for queue, lane in self._lanes.items():
            found = [delivery for delivery in lane if delivery in unwanted]
            if not found:
                continue
            taken += found
            rest = [delivery for delivery in lane if delivery not in unwanted]
            lane.clear()
            lane.extend(rest)
            if not lane:
                _remove(self._waiting[self._class_of[queue]], lane)
        self._size -= len(taken)
        return taken

    def release(self, queue: str, *, now: float) -> None:
        """Release a shard after its delivery, so that the next one may start. Other queues need no release."""
        if self._is_out.get(queue):
            self._is_out[queue] = False
            if self._lanes[queue] and not self._is_shut(queue):
                self._line_up(queue, now)

    def clear(self) -> list[Delivery]:
        """Remove and return all waiting deliveries, each queue in order."""
        rest = [delivery for lane in self._lanes.values() for delivery in lane]
        for lane in self._lanes.values():
            lane.clear()
        for lanes in self._waiting.values():
            lanes.clear()
        self._size = 0
        return rest

    def _is_shut(self, queue: str) -> bool:
        room = self._rooms.get(queue)
        return room is not None and room.out >= room.most

    def _line_up(self, queue: str, now: float) -> None:
        name = self._class_of[queue]
        if not self._waiting[name]:
            self._served[name] = now
        self._waiting[name].append(self._lanes[queue])

    def _next_class(self, waiting: list[PriorityClass], now: float) -> PriorityClass:
        if self._strict:
            return waiting[0]
        name = self._starving(waiting, now) if self._regular_turns >= _REGULAR_TURNS else None
        self._regular_turns = 0 if name else self._regular_turns + 1
        return name or self._due(waiting)

    def _take_reserved(self) -> PriorityClass:
        # Out of turn, so it is paid back within a round.
        self._credit["high"] = max(self._credit["high"] - 1, -self._weights["high"])
        return "high"

    def _starving(self, waiting: list[PriorityClass], now: float) -> PriorityClass | None:
        longest = min(waiting, key=lambda name: self._served[name])
        return longest if now - self._served[longest] > self._limit else None

    def _due(self, waiting: list[PriorityClass]) -> PriorityClass:
        while True:
            for name in waiting:
                if self._credit[name] > 0:
                    self._credit[name] -= 1
                    return name
            # Unused turns of a round are not saved up; turns taken in advance are remembered.
            self._credit = {name: min(self._credit[name], 0) + self._weights[name] for name in CLASSES}


class _QueueRoom(msgspec.Struct):
    """A queue's limit, and the number of its deliveries in slots."""

    most: int
    queues: Sequence[str]
    out: int = 0


def _remove(lanes: deque[deque[Delivery]], lane: deque[Delivery]) -> None:
    """Remove a lane from the line if it is there, by identity, because empty lanes are equal."""
    for place, other in enumerate(lanes):
        if other is lane:
            del lanes[place]
            return


def _classes(queue: WorkQueue) -> list[tuple[PriorityClass, str]]:
    if queue.ordered is not None or queue.priorities == "native":
        return [("medium", physical) for physical in queue.physical]
    if queue.lanes is not None:
        slow = slow_lane(queue.name)
        return [("low" if physical == slow else "medium", physical) for physical in queue.physical]
    # The store ordered its jobs already: they take turns with those of the medium class.
    names = [name for name in queue.physical if not is_jobs_queue(name)]
    stored: list[tuple[PriorityClass, str]] = [("medium", name) for name in queue.physical if is_jobs_queue(name)]
    return [*zip(CLASSES, names, strict=True), *stored]
