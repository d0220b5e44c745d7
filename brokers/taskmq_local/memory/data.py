"""Data of `memory://NAME`: plain queues behind one lock, shared within this process.

The data knows no event loop. A part that must react to changes registers a `LoopWakeup`, which is fired after the
lock is released. Positions in a queue only grow: a requeued message keeps its number and so comes first again; a
delayed one gets its number when it is due and so joins the tail.

A shard of an ordered queue belongs to its first taker, until the taker has left and all its messages are settled.
"""

import threading
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count

import msgspec
from msgspec.structs import replace

from taskmq.contracts.broker import Outgoing, QueueStats
from taskmq.contracts.stores import Revocation
from taskmq.errors import QueueMissing, Unroutable
from taskmq.model.headers import QUEUE
from taskmq.model.topology import UNROUTABLE, is_shard
from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.memory.results import ResultData
from taskmq_local.memory.store import Expiring
from taskmq_local.memory.tables import MemoryTables
from taskmq_local.rules.capacity import Capacity

_Hear = Callable[[str, bytes], None]


class MemoryMessage(msgspec.Struct):
    """A ready or taken message, with the number of times it was taken before."""

    place: int
    queue: "MemoryQueue"
    outgoing: Outgoing
    deliveries: int = 0

    def __lt__(self, other: "MemoryMessage") -> bool:
        return self.place < other.place


class MemoryQueue(msgspec.Struct, eq=False):
    """A physical queue and its messages.

    Attributes:
        taker: present owner of a shard.
        is_left: whether the taker takes no more.
    """

    name: str
    capacity: Capacity
    ready: list[MemoryMessage] = msgspec.field(default_factory=list["MemoryMessage"])
    unsettled: int = 0
    is_shard: bool = False
    taker: object = None
    is_left: bool = False

    def __post_init__(self) -> None:
        self.is_shard = is_shard(self.name)

    def check_room(self, message: Outgoing) -> None:
        """Raise `PublishRejected` if the queue is full."""
        if self.capacity.is_limited:
            held = sum(len(each.outgoing.body) for each in self.ready)
            refusal = self.capacity.refusal(self.name, ready=len(self.ready), held=held, size=len(message.body))
            if refusal is not None:
                raise refusal


class MemoryData:
    """Shared state of all brokers and states of one `memory://` name; usable from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.results = ResultData()
        self.starts = Expiring[int]()
        self.revocations = Expiring[Revocation]()
        self.tables = MemoryTables()
        self._lock = threading.Lock()
        self._queues: dict[str, MemoryQueue] = {}
        # By name and not in the queue: a consumer outlives its queue.
        self._consumers: dict[str, list[LoopWakeup]] = {}
        self._delayed: list[tuple[int, int, Outgoing]] = []
        self._places = count(1)
        self._timekeepers: list[LoopWakeup] = []
        self._listeners: list[_Hear] = []

    def declare(self, queues: Mapping[str, Capacity]) -> None:
        """Create the missing queues; existing ones get the newly declared capacity."""
        with self._lock:
            for name, capacity in queues.items():
                if name in self._queues:
                    self._queues[name].capacity = capacity
                else:
                    self._queues[name] = MemoryQueue(name, capacity)

    def delete(self, name: str) -> int:
        """Delete the queue and return the number of ready messages. Settling taken ones has no effect afterwards."""
        with self._lock:
            queue = self._find(name)
            del self._queues[name]
            return len(queue.ready)

    def publish(self, message: Outgoing, *, now: int) -> None:
        """Append `message` to its queue, or keep it until it is due.

        Raises:
            Unroutable: the queue does not exist.
            PublishRejected: the queue is full.
        """
        with self._lock:
            queue = self._queues.get(message.queue)
            if queue is None:
                raise Unroutable(message.queue)
            if message.due is not None and message.due > now:
                heappush(self._delayed, (message.due, next(self._places), message))
                wakeups = list(self._timekeepers) if self._delayed[0][2] is message else []
            else:
                queue.check_room(message)
                heappush(queue.ready, MemoryMessage(next(self._places), queue, message))
                wakeups = list(self._consumers.get(queue.name, ()))
        _fire(wakeups)

    def promote(self, now: int) -> int | None:
        """Promote every due message; return the next due time."""
        wakeups: list[LoopWakeup] = []
        with self._lock:
            while self._delayed and self._delayed[0][0] <= now:
                message = heappop(self._delayed)[2]
                queue = self._queues.get(message.queue)
                if queue is None:
                    queue = self._queues.setdefault(UNROUTABLE, MemoryQueue(UNROUTABLE, Capacity()))
                    message = replace(message, headers={**message.headers, QUEUE: message.queue})
                heappush(queue.ready, MemoryMessage(next(self._places), queue, message))
                wakeups += self._consumers.get(queue.name, ())
            due = self._delayed[0][0] if self._delayed else None
        _fire(wakeups)
        return due

    def take(self, name: str, limit: int, taker: object) -> list[MemoryMessage]:
        """Take up to `limit` ready messages from the front, but none of a shard that belongs to another taker.

        Raises:
            QueueMissing: the queue does not exist.
        """
        with self._lock:
            return _take(self._find(name), limit, taker)

    def take_share(self, name: str, limit: int, taker: object) -> tuple[list[MemoryMessage], bool]:
        """Take a fair share among the queue's consumers; return it and whether messages are left."""
        with self._lock:
            queue = self._find(name)
            if queue.is_shard:
                return _take(queue, limit, taker), False
            share = -(-len(queue.ready) // max(1, len(self._consumers.get(queue.name, ()))))
            return _take(queue, min(limit, share), taker), bool(queue.ready)

    def leave_shard(self, name: str, taker: object) -> None:
        """Release a shard once all messages that `taker` took of it are settled."""
        with self._lock:
            queue = self._queues.get(name)
            if queue is None or queue.taker is not taker:
                return
            queue.is_left = True
            wakeups = self._free(queue)
        _fire(wakeups)

    def remove(self, message: MemoryMessage) -> bool:
        """Delete a taken message; return False if its queue was deleted."""
        with self._lock:
            if self._queues.get(message.queue.name) is not message.queue:
                return False
            message.queue.unsettled -= 1
            wakeups = self._free(message.queue)
        _fire(wakeups)
        return True

    def give_back(self, messages: list[MemoryMessage]) -> None:
        """Requeue taken messages at their old positions."""
        wakeups: list[LoopWakeup] = []
        with self._lock:
            for message in messages:
                queue = message.queue
                if self._queues.get(queue.name) is not queue:
                    continue
                queue.unsettled -= 1
                message.deliveries += 1
                heappush(queue.ready, message)
                self._free(queue)
                wakeups += self._consumers.get(queue.name, ())
        _fire(wakeups)

    def purge(self, name: str) -> int:
        """Delete the ready messages; return their number."""
        with self._lock:
            queue = self._find(name)
            dropped = len(queue.ready)
            queue.ready.clear()
            return dropped

    def stats(self, names: list[str]) -> list[QueueStats]:
        with self._lock:
            return [
                QueueStats(
                    queue=name,
                    ready=len(queue.ready),
                    unsettled=queue.unsettled,
                    delayed=sum(message.queue == name for _, _, message in self._delayed),
                    consumers=len(self._consumers.get(queue.name, ())),
                )
                for name in names
                if (queue := self._queues.get(name)) is not None
            ]

    def exists(self, name: str) -> bool:
        with self._lock:
            return name in self._queues

    def join(self, name: str, wakeup: LoopWakeup) -> None:
        """Fire `wakeup` whenever a message of the queue becomes ready, and now if some are."""
        with self._lock:
            queue = self._find(name)
            self._consumers.setdefault(name, []).append(wakeup)
            ready = bool(queue.ready)
        if ready:
            wakeup.fire()

    def leave(self, name: str, wakeup: LoopWakeup) -> None:
        with self._lock:
            consumers = self._consumers.get(name, [])
            if wakeup in consumers:
                consumers.remove(wakeup)

    def watch_due(self, wakeup: LoopWakeup) -> None:
        """Fire `wakeup` now, and whenever the next due time moves closer."""
        with self._lock:
            self._timekeepers.append(wakeup)
        wakeup.fire()

    def unwatch_due(self, wakeup: LoopWakeup) -> None:
        with self._lock:
            if wakeup in self._timekeepers:
                self._timekeepers.remove(wakeup)

    def announce(self, topic: str, body: bytes) -> None:
        """Call all listeners, always in the same order."""
        with self._lock:
            for hear in self._listeners:
                hear(topic, body)

    def listen(self, hear: _Hear) -> None:
        """Call `hear` with topic and body of every announcement from now on."""
        with self._lock:
            self._listeners.append(hear)

    def stop_listening(self, hear: _Hear) -> None:
        with self._lock:
            if hear in self._listeners:
                self._listeners.remove(hear)

    def clear(self) -> None:
        """Delete everything: queues, delayed messages, and the state's data."""
        with self._lock:
            self._queues.clear()
            self._delayed.clear()
        self.results.clear()
        self.starts.clear()
        self.revocations.clear()
        self.tables.clear()

    def _free(self, queue: MemoryQueue) -> list[LoopWakeup]:
        """Release a shard whose taker has left and holds nothing; return the consumers to wake."""
        if not queue.is_left or queue.unsettled:
            return []
        queue.taker, queue.is_left = None, False
        return list(self._consumers.get(queue.name, ()))

    def _find(self, name: str) -> MemoryQueue:
        queue = self._queues.get(name)
        if queue is None:
            raise QueueMissing(name)
        return queue


def _take(queue: MemoryQueue, limit: int, taker: object) -> list[MemoryMessage]:
    if queue.is_shard:
        if queue.taker is not None and queue.taker is not taker:
            return []
        queue.taker = taker
    if limit >= len(queue.ready):
        taken = sorted(queue.ready)
        queue.ready.clear()
    else:
        taken = [heappop(queue.ready) for _ in range(max(0, limit))]
    queue.unsettled += len(taken)
    return taken


def _fire(wakeups: list[LoopWakeup]) -> None:
    for wakeup in wakeups:
        wakeup.fire()


_opened: dict[str, MemoryData] = {}
_opened_lock = threading.Lock()


def open_memory_data(name: str) -> MemoryData:
    """Return the data of that name in this process: one object for all users."""
    with _opened_lock:
        return _opened.setdefault(name, MemoryData(name))


def forget_memory(name: str = "") -> None:
    """Delete everything that `memory://NAME` holds, so that the next user finds it empty.

    Open brokers and states keep their object, which is empty too.
    """
    with _opened_lock:
        data = _opened.pop(name, None)
    if data is not None:
        data.clear()
