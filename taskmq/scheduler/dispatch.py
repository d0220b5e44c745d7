"""Dispatch of one partition's jobs to the broker, as far as their queues have room, in the order of their shares.

    arrived (a submit, a timer), wake or 500 ms -> lanes -> picks (pure) -> DISPATCH -> publish, beside the next one
                                                            gates of limits: what has to wait leaves its lane

It dispatches at once if the last batch was at least 4 ms ago, else when these are over: larger batches are cheaper.
Submitters and timers announce the lanes with ready jobs. If lanes are unknown, they are read from the store, for at
most a tenth of the time.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Final

from taskmq.contracts.jobs import DispatchBatch, JobStore, Lane, NewJob, PartitionHold, Pick
from taskmq.durable.service import pause, unless_set
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.fairness import Head
from taskmq.scheduler.gates import GatePassage
from taskmq.scheduler.invitations import InvitationPublisher
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts

_log = logging.getLogger("taskmq.scheduler")

_POLL: Final = 0.5
_PACE: Final = 0.004
_SHARING: Final = 1.0
_BATCH: Final = 500
# Reading the lanes takes at most a tenth of the time.
_READING: Final = 10
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GRACE: Final = 5.0


class JobDispatcher:
    """A service that dispatches the jobs of one partition and has them published.

    Args:
        placer: chooses nodes for the jobs of queues that are placed.
        paused: queues that operators have paused.
        on_ready: announces lanes with ready jobs, also of other partitions.
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
        on_ready: Callable[[Collection[Lane]], None],
        counts: SchedulerCounts,
    ) -> None:
        self._on_ready = on_ready
        self._jobs = store
        self._store = store.dispatching
        self._lease = lease
        self._state = state
        self._publisher = publisher
        self._placer = placer
        self._workers = workers
        self._paused = paused
        self._counts = counts
        self._passage = GatePassage(state.gates, state.claims, store.dispatching, lease)
        self._has_taken_over = False
        self._next_sharing = 0.0
        self._must_read_sharing = False
        self._has_failed = False
        self._publishing = TaskSet("publishes jobs", failure="jobs are published by the partition's next holder")
        # Holds of transactions that have not ended.
        self._holds = 0
        self._has_no_hold = asyncio.Event()
        self._has_no_hold.set()
        self._is_stopping = asyncio.Event()
        self._is_abandoned = asyncio.Event()
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

    def publish_left(self, batches: Sequence[DispatchBatch], *, has_caught_up: asyncio.Event) -> None:
        """Publish, in the background, the batches that an earlier holder left without a confirm.

        Args:
            has_caught_up: set once the reports that waited for this holder are applied.
        """
        if batches:
            self._publishing.start(self._publish_left(batches, has_caught_up))

    def publish_again(self, batch: DispatchBatch) -> None:
        """Publish, in the background, jobs that a worker returned or lost."""
        self._publishing.start(self._publisher.publish_again(batch))

    def hold_for(self, job: NewJob) -> PartitionHold | None:
        """Return the hold under which a transaction may create the job and dispatch it at once.

        Call `end_hold` after the transaction. Returns None if the job has to take its turn among others.
        """
        queue = job.queue
        if self._now() >= self._next_sharing:
            # Pools may have changed. They are read with the lanes before any other step goes at once.
            self._must_read_sharing = self._state.is_stale = True
            return None
        if (
            self._is_stopping.is_set()
            or not self._has_taken_over
            or self._paused.is_paused(queue)
            or not self._state.is_free_for(queue, self._workers.slots_of(queue), now=self._now())
        ):
            return None
        self._holds += 1
        self._has_no_hold.clear()
        return PartitionHold(self._lease.partition, self._lease.epoch)

    def end_hold(self) -> None:
        """Record that the transaction of a hold has ended, and that a job which it dispatched was launched."""
        self._holds -= 1
        if not self._holds:
            self._has_no_hold.set()

    def launch(self, batches: Sequence[DispatchBatch]) -> None:
        """Record dispatched batches as in flight, and publish them in the background."""
        self._state.add(batches, now=self._now())
        for batch in batches:
            self._counts.dispatched += len(batch.jobs)
            self._state.dispatched += len(batch.jobs)
            self._publishing.start(self._publisher.publish(batch))

    async def aclose(self) -> None:
        """Wait up to five seconds until the broker has confirmed everything dispatched, and stop publishing.

        Batches without a confirm are left to the partition's next holder. `abandon` ends the wait.
        """
        await unless_set(self._is_abandoned, self._settle(), timeout=_GRACE)
        await self._publishing.aclose()

    def stop(self) -> None:
        """Stop dispatching, and let `run` return."""
        self._is_stopping.set()
        self._state.has_work.set()

    def abandon(self) -> None:
        """Stop at once; the partition's next holder republishes what the broker has not confirmed."""
        self._is_abandoned.set()
        self._publisher.stop_trying()
        self.stop()

    async def run(self) -> None:
        """Dispatch until `stop`, and let the publishes end. After an error, the next call releases the partition."""
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
                            "releasing partition %d to acquire it anew: unknown jobs may have been dispatched: %s",
                            self._lease.partition,
                            error,
                        )
                        self._state.give_up()
                        break
                    _log.debug("partition %d: dispatch paused, store unavailable: %s", self._lease.partition, error)
                    await pause(self._is_stopping, self._backoff.next())
                    continue
                if not has_dispatched or not self._state.shares:
                    await pause(self._state.has_work, self._wait())
                if has_dispatched:
                    # After the wait: on an idle system the next job comes later anyway.
                    await pause(self._is_stopping, max(began + _PACE - self._now(), 0))
            # Reports are still applied now; jobs of an earlier holder wait for them.
            await unless_set(self._is_abandoned, self._publishing.wait(_GRACE))
        except Exception:
            self._has_failed = True
            raise
        finally:
            self._publisher.stop_trying()

    async def _settle(self) -> None:
        """Wait until no transaction has a hold and nothing is being published."""
        await self._has_no_hold.wait()
        await self._publishing.wait(_GRACE)

    async def _publish_left(self, batches: Sequence[DispatchBatch], has_caught_up: asyncio.Event) -> None:
        try:
            may_publish = await self._publisher.fail_left(batches, has_caught_up=has_caught_up)
        except Exception:
            # The partition is acquired anew, and its take-over repeated.
            await pause(self._is_stopping, _PAUSE)
            self._state.give_up()
            raise
        if may_publish:
            for batch in batches:
                self.publish_again(batch)

    async def _dispatch(self) -> bool:
        """Dispatch once; return whether anything was dispatched."""
        if self._state.is_troubled:
            # Jobs that wait in the store can still be changed; dispatched ones cannot.
            return False
        if not self._has_taken_over:
            self._has_taken_over = await self._passage.take_over(unless=self._is_stopping.is_set)
            self._state.is_stale = True
            if not self._has_taken_over:
                return False
        await self._refresh()
        state, now = self._state, self._now()
        await self._open_claims(now)
        # After reading the lanes, because these may have arrived meanwhile.
        state.admit_arrived()
        for lane in await self._passage.open_due(lambda queue: self._room(queue) > 0, now=now):
            state.shares.add(lane)
        if state.has_node_news:
            state.has_node_news = False
            self._next_placing = 0.0
            self._full.reset()
        others = state.shares.picks(self._room, limit=_BATCH, now=now)
        # With a limit of their own, so that jobs without a fitting node take no other job's turn.
        placed = state.shares.picks(self._room_of_nodes, limit=_BATCH, now=now) if now >= self._next_placing else []
        picks = others + placed
        if not picks:
            return False
        batches: list[DispatchBatch] = []
        try:
            await self._take(others, placed, batches)
            state.trips.record("dispatch", self._now() - now)
        finally:
            # Also after an error: the batches that are known are in flight, and no other scheduler publishes them.
            self.launch(batches)
        if placed:
            self._update_placing(batches)
        if not batches:
            # The jobs expired or changed, no node has room, or another scheduler holds the partition.
            state.exhaust(picks)
            if others:
                state.is_stale = True
                self._earliest_read = max(self._earliest_read, self._now() + self._fruitless.next())
            return False
        self._fruitless.reset()
        self._mark_exhausted(picks, batches)
        return True

    async def _open_claims(self, now: float) -> None:
        """Return jobs of any partition to their lanes whose claims may have free places."""
        claims = self._state.claims
        if not (asked := claims.due(now=now)):
            return
        try:
            opened = await self._store.open_claims(asked)
        except StoreUnavailable:
            claims.restore(asked)
            raise
        claims.record_opened(asked, opened)
        self._on_ready(opened.lanes)

    async def _take(self, others: list[Pick], placed: list[Pick], batches: list[DispatchBatch]) -> None:
        """Dispatch the picks, and append the batches."""
        if placed:
            batch = await self._placer.place(placed)
            for queue in {pick.lane.queue for pick in placed}:
                self._state.shares.resize(queue, self._placer.capacity)
            if batch is not None:
                batches.append(batch)
        others, has_put, has_more = await self._passage.divide(others, now=self._now())
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

    def _update_placing(self, batches: list[DispatchBatch]) -> None:
        """If no node had room, try placing later, or once a job has left a node; other queues continue."""
        if any(self._state.rules.is_placed(job.queue) for batch in batches for job in batch.jobs):
            self._full.reset()
            return
        self._next_placing = self._now() + self._full.next()
        self._next_poll = min(self._next_poll, self._next_placing)

    async def _refresh(self) -> None:
        """Read the lanes, if there may be new ones and they were not just read."""
        began = self._now()
        if began < self._earliest_read or (not self._state.is_stale and began < self._next_poll):
            return
        self._state.is_stale = False
        self._next_poll = began + _POLL
        try:
            lanes = await self._store.lanes(self._lease.partition)
            # Runs may have to give way to jobs at the broker even if none waits in the store.
            is_wanted = lanes or self._state.ledger.giving_way or self._must_read_sharing
            if is_wanted and began >= self._next_sharing:
                sharing = await self._jobs.sharing()
                if self._state.follow(sharing, await self._jobs.quotas()):
                    version = sharing.version
                    _log.info(
                        "partition %d: applying version %d of policies and pools", self._lease.partition, version
                    )
                self._next_sharing, self._must_read_sharing = began + _SHARING, False
            self._state.shares.refresh(lanes, await self._heads(lanes))
        except StoreUnavailable:
            self._state.is_stale = True
            raise
        ended = self._now()
        # The shorter of two readings: the first one of a connection, or one after a stall, is not representative.
        before, self._reading = self._reading, ended - began
        self._earliest_read = ended + max(_PACE, _READING * min(before, self._reading))

    async def _heads(self, lanes: Sequence[Lane]) -> dict[Lane, Head]:
        """Read the head of each lane, in queues that order by age."""
        queues = sorted({lane.queue for lane in lanes if self._state.shares.goes_by_heads(lane.queue)})
        if not queues:
            return {}
        return {
            lane: (head.due / 1000, inf if head.expires is None else head.expires / 1000)
            for lane, head in (await self._store.heads(queues)).items()
        }

    def _mark_exhausted(self, picks: list[Pick], batches: list[DispatchBatch]) -> None:
        found = Counter(Lane(job.queue, job.priority, job.tenant) for batch in batches for job in batch.jobs)
        for pick in picks:
            if found[pick.lane] < pick.count:
                # Jobs that fit on no node are tried again when a job leaves, or at the next poll.
                self._state.shares.drop(pick.lane)
        # Expired jobs counted as picked, so their lanes may have more jobs. A lane that was served has a new head.
        self._state.is_stale |= any(batch.expired for batch in batches) or any(
            self._state.shares.goes_by_heads(lane.queue) for lane in found
        )

    def _room(self, queue: str) -> int:
        """Return the free capacity of a queue that any worker may serve."""
        if self._paused.is_paused(queue):
            return 0
        return self._state.room(queue, self._workers.slots_of(queue), now=self._now())

    def _room_of_nodes(self, queue: str) -> int:
        """Return how many jobs of a placed queue may be examined: a full batch, because the nodes limit it."""
        if self._paused.is_paused(queue) or self._state.pauses.is_paused(queue, now=self._now()):
            return 0
        return _BATCH if self._state.rules.is_placed(queue) else 0

    def _wait(self) -> float:
        """Return the seconds until the next poll, if nothing wakes the dispatcher."""
        if self._state.is_troubled:
            return _POLL
        look = 0.0 if self._state.is_stale else self._next_poll
        at = min(max(self._earliest_read, look), self._state.gates.next(), self._state.claims.next())
        return max(at - self._now(), 0.0)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
