"""Handing jobs of one partition to the broker: as many as their queues have room for, in the order of their shares.

    arrived (a submit, a timer), wake or 500 ms -> lanes -> picks (pure) -> DISPATCH -> publish, beside the next one
                                                            gates of limits: what has to wait leaves its lane

At once when nothing was dispatched in the last 4 ms, else when they are over: then there is more in a batch, and
small batches are what costs. Who makes jobs ready says in which lanes. Where that is not known, which lanes there are
is read, at most for a tenth of the time, however many there are.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Final

from taskmq.contracts.jobs import DispatchBatch, JobStore, Lane, Pick
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.fairness import Head
from taskmq.scheduler.gates import GatePassage
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.publish import InvitationPublisher
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts

__all__ = ["JobDispatcher"]

_log = logging.getLogger("taskmq.scheduler")

_POLL: Final = 0.5
_PACE: Final = 0.004
_SHARING: Final = 1.0
_BATCH: Final = 500
# Reading the lanes takes at most a tenth of the time.
_READING: Final = 10
# One that brings fewer than this has found the end of a lane; a larger one may have met jobs that had expired: the
# lanes are read again soon.
_FEW: Final = 50
_SOON: Final = 0.1
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GRACE: Final = 5.0


class JobDispatcher:
    """Dispatches the jobs of one partition, and has them published: a `Service`.

    Args:
        placer: chooses nodes for the jobs of queues that are placed.
        paused: queues that operators have paused.
    """

    def __init__(
        self,
        store: JobStore,
        lease: HeldLease,
        state: PartitionState,
        *,
        publisher: InvitationPublisher,
        placer: Placer,
        workers: LiveWorkers,
        paused: PausedQueues,
        counts: SchedulerCounts,
    ) -> None:
        self._jobs = store
        self._store = store.dispatching
        self._lease = lease
        self._state = state
        self._publisher = publisher
        self._placer = placer
        self._workers = workers
        self._paused = paused
        self._counts = counts
        self._passage = GatePassage(state.gates, store.dispatching, lease)
        self._has_taken_over = False
        self._next_sharing = 0.0
        self._has_failed = False
        self._publishing = TaskSet("publishes jobs", failure="jobs are published by the partition's next holder")
        self._is_stopping = asyncio.Event()
        self._grace = _GRACE
        self._next_poll = 0.0
        self._earliest_read = 0.0
        self._reading = 0.0
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        self._fruitless = Backoff(_PACE, _POLL)
        self._next_placing = 0.0
        self._full = Backoff(_PACE, _POLL)

    def window(self, queue: str) -> int:
        """Return how many jobs of a queue may be in flight now."""
        return self._state.window(queue, self._workers.slots_of(queue), now=self._now())

    def publish_again(self, batch: DispatchBatch) -> None:
        """Publish, beside everything else, a batch that an earlier holder of the partition may have published."""
        self._publishing.start(self._publisher.publish_again(batch))

    async def aclose(self) -> None:
        """Stop publishing; batches without a confirm are left to the partition's next holder."""
        await self._publishing.aclose()

    def stop(self) -> None:
        """Dispatch nothing more; see `Service`."""
        self._is_stopping.set()
        self._state.has_work.set()

    def abandon(self) -> None:
        """Stop at once: the partition's next holder publishes again what the broker has not confirmed."""
        self._grace = 0.0
        self._publisher.stop_trying()
        self.stop()

    async def run(self) -> None:
        """Dispatch until `stop`; what was dispatched is with the broker then, if that answers.

        Where it has raised, the next call gives the partition back: what was being published then is its next
        holder's.
        """
        if self._has_failed:
            self._state.give_up()
            return
        try:
            while not self._is_stopping.is_set():
                self._state.has_work.clear()
                began = self._now()
                try:
                    has_dispatched = await self._dispatch()
                    self._backoff.reset()
                except StoreUnavailable as error:
                    if not error.is_certain:
                        _log.warning(
                            "partition %d is given back and taken anew: unknown jobs may have been dispatched: %s",
                            self._lease.partition,
                            error,
                        )
                        self._state.give_up()
                        break
                    _log.debug("partition %d: nothing is dispatched for now: %s", self._lease.partition, error)
                    await pause(self._is_stopping, self._backoff.next())
                    continue
                if has_dispatched:
                    await pause(self._is_stopping, max(began + _PACE - self._now(), 0))
                else:
                    await pause(self._state.has_work, self._wait())
            # What is with the publisher has as long as it takes to report it.
            await self._publishing.aclose(grace=self._grace)
        except StoreUnavailable as error:
            _log.debug(
                "partition %d: its next holder lets jobs go that wait behind gates: %s", self._lease.partition, error
            )
        except Exception:
            self._has_failed = True
            raise
        finally:
            self._publisher.stop_trying()
            await self._publishing.aclose()

    async def _dispatch(self) -> bool:
        """Dispatch once; return whether anything was dispatched."""
        if self._state.is_troubled:
            # Jobs that wait in the store can be changed, and those that wait here cannot.
            return False
        if not self._has_taken_over:
            # How far the limits of those that wait are used up is known as jobs are looked at.
            self._has_taken_over = await self._passage.open_all(unless=self._is_stopping.is_set)
            self._state.is_stale = True
            if not self._has_taken_over:
                return False
        await self._refresh()
        state, now = self._state, self._now()
        # After the reading, which may have begun before these came.
        state.admit_arrived()
        for lane in await self._passage.open_due(lambda queue: self._room(queue) > 0, now=now):
            state.shares.arrived(lane)
        if state.has_node_news:
            state.has_node_news = False
            self._next_placing = 0.0
            self._full.reset()
        others = state.shares.picks(self._room, limit=_BATCH, now=now)
        # Beside the others, not out of their number: what fits nowhere takes no other job's turn.
        placed = state.shares.picks(self._room_of_nodes, limit=_BATCH, now=now) if now >= self._next_placing else []
        picks = others + placed
        if not picks:
            return False
        batches: list[DispatchBatch] = []
        try:
            await self._take(others, placed, batches)
        finally:
            # What became of the picks, also where the rest is unknown: another dispatch counts what is in flight
            # anew, and no other scheduler publishes what the store has.
            state.add(batches, now=now)
            for batch in batches:
                self._counts.dispatched += len(batch.jobs)
                self._publishing.start(self._publisher.publish(batch))
        if placed:
            self._see_nodes(batches)
        if not batches:
            # They had expired, a caller has changed them, no node has room, or the partition is another scheduler's.
            state.exhaust(picks)
            if others:
                state.is_stale = True
                self._earliest_read = max(self._earliest_read, self._now() + self._fruitless.next())
            return False
        self._fruitless.reset()
        self._see_ends(picks, batches)
        return True

    async def _take(self, others: list[Pick], placed: list[Pick], batches: list[DispatchBatch]) -> None:
        """Dispatch what was picked, and add the batches."""
        if placed:
            batch = await self._placer.place(placed)
            for queue in {pick.lane.queue for pick in placed}:
                self._state.shares.resize(queue, self._placer.capacity)
            if batch is not None:
                batches.append(batch)
        others, has_put, has_more = await self._passage.passed(others, now=self._now())
        if has_put:
            self._fruitless.reset()
        self._state.is_stale |= has_more
        partition, epoch, held_back = self._lease.partition, self._lease.epoch, self._state.held_back
        if limited := [pick for pick in others if pick.lane.tenant in held_back]:
            others = [pick for pick in others if pick.lane.tenant not in held_back]
            batch = await self._store.dispatch_within(partition, epoch, limited, self._state.quotas)
            if batch is not None:
                batches.append(batch)
        if others:
            batch = await self._store.dispatch(partition, epoch, others)
            if batch is not None:
                batches.append(batch)

    def _see_nodes(self, batches: list[DispatchBatch]) -> None:
        """Where no node has had room, look again later, or once a job has left one; other queues go on meanwhile."""
        if any(self._state.rules.is_placed(job.queue) for batch in batches for job in batch.jobs):
            self._full.reset()
            return
        self._next_placing = self._now() + self._full.next()
        self._next_poll = min(self._next_poll, self._next_placing)

    async def _refresh(self) -> None:
        """Read the lanes, if there may be new ones and it was not done just now."""
        began = self._now()
        if began < self._earliest_read or (not self._state.is_stale and began < self._next_poll):
            return
        self._state.is_stale = False
        self._next_poll = began + _POLL
        try:
            lanes = await self._store.lanes(self._lease.partition)
            # Runs may have to give way to jobs that wait at the broker, also when none waits in the store.
            if (lanes or self._state.ledger.giving_way) and began >= self._next_sharing:
                sharing = await self._jobs.sharing()
                if self._state.follow(sharing, await self._jobs.quotas()):
                    version = sharing.version
                    _log.info(
                        "partition %d: follows version %d of policies and pools", self._lease.partition, version
                    )
                self._next_sharing = began + _SHARING
            self._state.shares.refresh(lanes, await self._heads(lanes))
        except StoreUnavailable:
            self._state.is_stale = True
            raise
        ended = self._now()
        # Of two readings the shorter one: the first of a connection, or one behind a stall, says little of the next.
        before, self._reading = self._reading, ended - began
        self._earliest_read = ended + max(_PACE, _READING * min(before, self._reading))

    async def _heads(self, lanes: Sequence[Lane]) -> dict[Lane, Head]:
        """Read the ages of jobs, in queues that go by age."""
        queues = sorted({lane.queue for lane in lanes if self._state.shares.goes_by_heads(lane.queue)})
        if not queues:
            return {}
        # Who has been served has another first job now.
        self._state.is_stale = True
        return {
            lane: (head.due / 1000, inf if head.expires is None else head.expires / 1000)
            for lane, head in (await self._store.heads(queues)).items()
        }

    def _see_ends(self, picks: list[Pick], batches: list[DispatchBatch]) -> None:
        found = Counter(Lane(job.queue, job.priority, job.tenant) for batch in batches for job in batch.jobs)
        for pick in picks:
            if found[pick.lane] < pick.count:
                self._state.shares.exhausted(pick.lane)
                # Those that fit on no node are looked at again when something leaves, or at the next poll.
                is_held = self._state.rules.is_placed(pick.lane.queue) or pick.lane.tenant in self._state.held_back
                if pick.count >= _FEW and not is_held:
                    self._next_poll = min(self._next_poll, self._now() + _SOON)

    def _room(self, queue: str) -> int:
        """Return the free capacity of a queue that any worker may serve."""
        if self._paused.is_paused(queue):
            return 0
        return self._state.room(queue, self._workers.slots_of(queue), now=self._now())

    def _room_of_nodes(self, queue: str) -> int:
        """Return how many jobs of a placed queue may be looked at: any number, since the nodes say what fits."""
        if self._paused.is_paused(queue) or self._state.pauses.is_paused(queue, now=self._now()):
            return 0
        return _BATCH if self._state.rules.is_placed(queue) else 0

    def _wait(self) -> float:
        """Seconds until there is something to be looked for without a wake."""
        if self._state.is_troubled:
            return _POLL
        look = 0.0 if self._state.is_stale else self._next_poll
        at = min(max(self._earliest_read, look), self._state.gates.next())
        return max(at - self._now(), 0.0)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
