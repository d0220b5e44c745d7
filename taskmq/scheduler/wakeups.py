"""Wake-ups of the schedulers that hold partitions with jobs that are ready, or soon will be.

    jobs are ready  ->  the partition is held here: its state is woken; elsewhere: its holder gets a signal

All of it is a hint: a holder looks by itself twice a second.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from taskmq.contracts.broker import Broadcasting, Broker
from taskmq.contracts.jobs import DispatchStore, Lane, encode_lanes, ready_topic
from taskmq.scheduler.firing import Timers
from taskmq.scheduler.partition import PartitionState

__all__ = ["DUE_TOPIC", "FREED_TOPIC", "Wakeups"]

DUE_TOPIC: Final = "store.due."
FREED_TOPIC: Final = "store.partitions"
# Timers are divided into so many shards, by the last byte of the ids of jobs, and shards over partitions.
_SHARDS: Final = 64


class _Wakeable(NamedTuple):
    """A partition that is held here."""

    state: PartitionState
    timers: Timers


class Wakeups:
    """Wakes the holders of partitions.

    Args:
        broker: through which other schedulers hear; None: there are none.
    """

    def __init__(self, store: DispatchStore, broker: Broker | None) -> None:
        self._store = store
        self._broker = broker
        self._held: dict[int, _Wakeable] = {}

    def hold(self, partition: int, state: PartitionState, timers: Timers) -> None:
        """Wake this state from now on: the partition is held here."""
        self._held[partition] = _Wakeable(state, timers)

    def release(self, partition: int, state: PartitionState) -> None:
        """Leave the partition to another scheduler; does nothing where another state of it is held."""
        if (held := self._held.get(partition)) is not None and held.state is state:
            del self._held[partition]

    def wake_all(self) -> None:
        """Have every partition that is held here look for jobs."""
        for held in self._held.values():
            held.state.wake()

    def wake_here(self, partition: int, lanes: Collection[Lane] = ()) -> None:
        """Have a partition look at these lanes, or for all jobs where none is named, if it is held here."""
        if (held := self._held.get(partition)) is None:
            return
        # What is heard may be of any version of this program: no partition's holder dispatches what is another one's.
        if known := [lane for lane in lanes if self._store.partition_of(lane.queue) == partition]:
            held.state.arrive(known)
        else:
            held.state.wake()

    def expect_here(self, partition: int, seconds: float) -> None:
        """Have a partition look for timers that are due in so many seconds, if it is held here."""
        if (held := self._held.get(partition)) is not None:
            held.timers.expect(seconds)

    def wake_lanes(self, lanes: Collection[Lane]) -> None:
        """Announce that these lanes have got jobs that are ready, whichever scheduler holds their partitions."""
        by_partition: dict[int, set[Lane]] = {}
        for lane in lanes:
            by_partition.setdefault(self._store.partition_of(lane.queue), set()).add(lane)
        for partition, its in by_partition.items():
            self._wake(partition, its)

    def wake_queues(self, queues: Collection[str]) -> None:
        """Announce that these queues have got jobs that are ready, whichever scheduler holds their partitions."""
        for partition in {self._store.partition_of(queue) for queue in queues}:
            self._wake(partition)

    def wake_later(self, job_id: str, queue: str, seconds: float) -> None:
        """Announce that a job is to run again after so many seconds; 0: it is ready."""
        if seconds <= 0:
            self.wake_queues({queue})
            return
        partition = (int(job_id[-2:], 16) % _SHARDS) % self._store.partitions
        if partition in self._held:
            self.expect_here(partition, seconds)
        else:
            self._announce(f"{DUE_TOPIC}{partition}", str(round(seconds * 1000)).encode())

    def announce_freed(self) -> None:
        """Have all schedulers look at who holds which partition."""
        self._announce(FREED_TOPIC)

    def _wake(self, partition: int, lanes: Collection[Lane] = ()) -> None:
        if partition in self._held:
            self.wake_here(partition, lanes)
        else:
            self._announce(ready_topic(partition), encode_lanes(lanes))

    def _announce(self, topic: str, body: bytes = b"") -> None:
        if isinstance(self._broker, Broadcasting):
            self._broker.announce(topic, body)
