"""Wake-ups of the schedulers whose partitions have ready jobs, or soon will.

    jobs are ready      ->  if the partition is held here: its state is woken; otherwise: its holder gets a signal
    a job is dispatched ->  if the partition is held here: its dispatcher publishes it; otherwise its next holder

Wake-ups are hints: a holder polls twice a second.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import (
    DispatchBatch,
    DispatchStore,
    FindHold,
    Lane,
    NewJob,
    PartitionHold,
    encode_lanes,
    ready_topic,
)
from taskmq.scheduler.firing import Timers
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease

DUE_TOPIC: Final = "store.due."
FREED_TOPIC: Final = "store.partitions"
# Timers are divided into shards by the last byte of the job ids, and shards over partitions.
_SHARDS: Final = 64


class _Wakeable(NamedTuple):
    """A partition that is held here."""

    epoch: int
    state: PartitionState
    timers: Timers
    find_hold: FindHold
    launch: Callable[[Sequence[DispatchBatch]], None]
    end_hold: Callable[[], None]


class Wakeups:
    """Sender of wake-ups to the holders of partitions.

    Args:
        broker: broker that reaches other schedulers; None: there are none.
    """

    def __init__(self, store: DispatchStore, broker: Broker | None) -> None:
        self._store = store
        self._broker = broker
        self._held: dict[int, _Wakeable] = {}

    def hold(
        self,
        lease: HeldLease,
        state: PartitionState,
        timers: Timers,
        *,
        find_hold: FindHold,
        launch: Callable[[Sequence[DispatchBatch]], None],
        end_hold: Callable[[], None],
    ) -> None:
        """Wake this state from now on: the partition is held here.

        Args:
            find_hold: decides about new jobs that may be dispatched at once.
            launch: publishes dispatched batches.
            end_hold: called once for each hold, after `launch`.
        """
        self._held[lease.partition] = _Wakeable(lease.epoch, state, timers, find_hold, launch, end_hold)

    def release(self, partition: int, state: PartitionState) -> None:
        """Stop waking this state; does nothing if another state of the partition is held."""
        if (held := self._held.get(partition)) is not None and held.state is state:
            del self._held[partition]

    def find_hold(self, job: NewJob) -> PartitionHold | None:
        """Return the hold under which a new job may be dispatched at once; None if there is none here.

        Call `end_hold` after the transaction: the release of a partition waits for it.
        """
        held = self._held.get(self._store.partition_of(job.queue))
        return None if held is None else held.find_hold(job)

    def launch(self, hold: PartitionHold, batch: DispatchBatch) -> None:
        """Publish a batch that was dispatched under a hold; its next holder does if it was lost meanwhile."""
        if (held := self._held.get(hold.partition)) is not None and held.epoch == hold.epoch:
            held.launch([batch])

    def give_up(self, hold: PartitionHold) -> None:
        """Have a partition released, because unknown jobs may have been dispatched under this hold."""
        if (held := self._held.get(hold.partition)) is not None and held.epoch == hold.epoch:
            held.state.give_up()

    def end_hold(self, hold: PartitionHold) -> None:
        """Record that the transaction of a hold has ended, and that a job which it dispatched was launched."""
        if (held := self._held.get(hold.partition)) is not None and held.epoch == hold.epoch:
            held.end_hold()

    def wake_all(self) -> None:
        """Have every partition held here look for jobs."""
        for held in self._held.values():
            held.state.wake()

    def wake_here(self, partition: int, lanes: Collection[Lane] = ()) -> None:
        """Wake a partition for these lanes, or for all if none are given, if it is held here."""
        if (held := self._held.get(partition)) is None:
            return
        # A signal may come from another version of taskmq; lanes of other partitions are ignored.
        if known := [lane for lane in lanes if self._store.partition_of(lane.queue) == partition]:
            held.state.arrive(known)
        else:
            held.state.wake()

    def expect_here(self, partition: int, seconds: float) -> None:
        """Have a partition check for timers due in this many seconds, if it is held here."""
        if (held := self._held.get(partition)) is not None:
            held.timers.expect(seconds)

    def wake_lanes(self, lanes: Collection[Lane]) -> None:
        """Announce lanes with ready jobs to the holders of their partitions."""
        by_partition: dict[int, set[Lane]] = {}
        for lane in lanes:
            by_partition.setdefault(self._store.partition_of(lane.queue), set()).add(lane)
        for partition, group in by_partition.items():
            self._wake(partition, group)

    def wake_queues(self, queues: Collection[str]) -> None:
        """Announce queues with ready jobs to the holders of their partitions."""
        for partition in {self._store.partition_of(queue) for queue in queues}:
            self._wake(partition)

    def wake_later(self, job_id: str, queue: str, seconds: float) -> None:
        """Announce that a job runs again after this many seconds; 0: it is ready."""
        if seconds <= 0:
            self.wake_queues({queue})
            return
        partition = (int(job_id[-2:], 16) % _SHARDS) % self._store.partitions
        if partition in self._held:
            self.expect_here(partition, seconds)
        else:
            self._announce(f"{DUE_TOPIC}{partition}", str(round(seconds * 1000)).encode())

    def announce_freed(self) -> None:
        """Announce that partitions were released, so that all schedulers poll the leases."""
        self._announce(FREED_TOPIC)

    def _wake(self, partition: int, lanes: Collection[Lane] = ()) -> None:
        if partition in self._held:
            self.wake_here(partition, lanes)
        else:
            self._announce(ready_topic(partition), encode_lanes(lanes))

    def _announce(self, topic: str, body: bytes = b"") -> None:
        if isinstance(self._broker, Broadcasting):
            self._broker.announce(topic, body)
