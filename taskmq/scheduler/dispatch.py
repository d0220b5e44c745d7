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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from taskmq.contracts.jobs import DispatchBatch, DispatchStore, Lane, Pick
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.jobs.pools import Amounts, QueuePolicy, Sharing, TenantPool
from taskmq.model.jobs.quotas import HeldBack, Quotas
from taskmq.scheduler.fairness import Head, Shares, Window
from taskmq.scheduler.gates import GatePassage
from taskmq.scheduler.ledger import Ledger
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.publish import InvitationPublisher
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
    """Dispatches for one partition: a `Service`.

    Args:
        slots_of: live worker slots of a queue; None: unknown.
        policies: of queues, as the app describes them.
        sharing: reads what operators have said about turns, which goes before.
        quotas: reads what they have said about quotas, of which some let jobs wait.
        passage: through which jobs of all other queues go, or wait for the limits of their tasks.
        placer: chooses nodes for the jobs of queues that are `is_placed`, and that no operator has paused
            (`is_paused`).
        unsure: called where the store may have dispatched jobs that are not known here: the next holder of the
            partition gets them.
    """

    def __init__(
        self,
        store: DispatchStore,
        lease: HeldLease,
        ledger: Ledger,
        publisher: InvitationPublisher,
        *,
        slots_of: Callable[[str], int | None],
        policies: Mapping[str, QueuePolicy],
        sharing: Callable[[], Awaitable[Sharing]],
        quotas: Callable[[], Awaitable[Quotas]],
        passage: GatePassage,
        placer: Placer,
        is_placed: Callable[[str], bool],
        is_paused: Callable[[str], bool],
        unsure: Callable[[], None],
        counts: SchedulerCounts,
    ) -> None:
        self._store = store
        self._lease = lease
        self._ledger = ledger
        self._publisher = publisher
        self._slots_of = slots_of
        self._passage = passage
        self._gates = passage.gates
        self._has_taken_over = False
        self._placer = placer
        self._is_placed = is_placed
        self._is_paused = is_paused
        self._unsure = unsure
        self._counts = counts
        self._shares = Shares()
        self._shares.configure(policies, {})
        self._policies = policies
        self._read_sharing = sharing
        self._read_quotas = quotas
        self._quotas = Quotas()
        self._held_back = HeldBack()
        self._next_sharing = 0.0
        self._followed = 0
        self._windows: dict[str, Window] = {}
        self._has_failed = False
        self._publishing = TaskSet("publishes jobs", failure="jobs are published by the partition's next holder")
        self._waking = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._grace = _GRACE
        self._is_stale = True
        self._arrived: dict[Lane, None] = {}
        self._next_poll = 0.0
        self._earliest_read = 0.0
        self._reading = 0.0
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        self._fruitless = Backoff(_PACE, _POLL)
        self._next_placing = 0.0
        self._full = Backoff(_PACE, _POLL)

    def wake(self) -> None:
        """There may be jobs that are ready."""
        self._is_stale = True
        self._waking.set()

    def arrived(self, lanes: Iterable[Lane]) -> None:
        """These lanes have got jobs that are ready."""
        for lane in lanes:
            if self._shares.goes_by_heads(lane.queue):
                # The ages of its jobs have to be read.
                self._is_stale = True
            else:
                self._arrived[lane] = None
        self._waking.set()

    def has_room(self) -> None:
        """There may be room for more jobs."""
        self._waking.set()

    def ended(self, queue: str, count: int) -> None:
        """Jobs of a queue have left: there is room."""
        self._window(queue).ended(count, now=self._now())
        if self._shares or self._gates.are_closed:
            self._waking.set()

    def resume(self, batch: DispatchBatch) -> None:
        """An earlier holder of the partition has dispatched it: it is in flight."""
        self._ledger.add(batch)
        self._placer.keep(batch)
        self._shares.taken(_found(batch), self._needs_of([batch]))
        self._gates.taken(batch.jobs, now=self._now())

    def began(self, job_id: str, *, ran: float = 0.0) -> None:
        """A job is known to run; `ran`: for so long already, where an earlier holder has dispatched it."""
        self._ledger.began(job_id)
        self._shares.began(job_id, now=self._now(), ran=ran)

    def turned_back(self, job_id: str, seconds: float) -> None:
        """A worker reports that a limit of the job's task is used up, for so long; `left` follows."""
        self._gates.turned_back(job_id, seconds, now=self._now())

    def left(self, job_id: str, seconds: float | None) -> None:
        """A job is not in flight any more, and has run for so long; 0: it never did; None: unknown."""
        self._shares.ended(job_id, seconds)
        if self._gates.left(job_id):
            self._waking.set()
        if self._placer.left(job_id, seconds):
            # There is room on its node, perhaps for one that had none before.
            self._next_placing = 0.0
            self._full.reset()
            self.wake()
        elif self._held_back:
            # There is room in its quota.
            self.wake()

    def described(self, queue: str) -> tuple[QueuePolicy, Mapping[str, TenantPool]]:
        """How a queue takes turns, and all pools, as they were last read."""
        return self._shares.described(queue)

    def window(self, queue: str) -> int:
        """How many jobs of a queue may be in flight now."""
        return self._window(queue).size(self._slots_of(queue), now=self._now())

    def publish(self, batch: DispatchBatch) -> None:
        """Publish a batch beside everything else."""
        self._publishing.start(self._publisher.publish(batch))

    def publish_again(self, batch: DispatchBatch) -> None:
        """The same with one that an earlier holder of the partition may have published."""
        self._publishing.start(self._publisher.publish_again(batch))

    def stop(self) -> None:
        """Dispatch nothing more; see `Service`."""
        self._is_stopping.set()
        self._waking.set()

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
            self._unsure()
            return
        try:
            while not self._is_stopping.is_set():
                self._waking.clear()
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
                        self._unsure()
                        break
                    _log.debug("partition %d: nothing is dispatched for now: %s", self._lease.partition, error)
                    await pause(self._is_stopping, self._backoff.next())
                    continue
                if has_dispatched:
                    await pause(self._is_stopping, max(began + _PACE - self._now(), 0))
                else:
                    await pause(self._waking, self._wait())
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
        """One dispatch; whether anything was taken."""
        if self._publisher.is_troubled:
            # Jobs that wait in the store can be changed, and those that wait here cannot.
            return False
        if not self._has_taken_over:
            # How far the limits of those that wait are used up is known as jobs are looked at.
            self._has_taken_over = await self._passage.open_all(unless=self._is_stopping.is_set)
            self._is_stale = True
            if not self._has_taken_over:
                return False
        await self._refresh()
        # After the reading, which may have begun before these came.
        arrived, self._arrived = self._arrived, {}
        for lane in arrived:
            self._shares.arrived(lane)
        now = self._now()
        for lane in await self._passage.open_due(lambda queue: self._room(queue) > 0, now=now):
            self._shares.arrived(lane)
        others = self._shares.picks(self._room, limit=_BATCH, now=now)
        # Beside the others, not out of their number: what fits nowhere takes no other job's turn.
        placed = self._shares.picks(self._room_of_nodes, limit=_BATCH, now=now) if now >= self._next_placing else []
        picks = others + placed
        if not picks:
            return False
        batches: list[DispatchBatch] = []
        try:
            await self._take(others, placed, batches)
        finally:
            # What became of the picks, also where the rest is unknown: another dispatch counts what is in flight
            # anew, and no other scheduler publishes what the store has.
            for batch in batches:
                self._ledger.add(batch)
                self._placer.keep(batch)
                self._counts.dispatched += len(batch.jobs)
                self.publish(batch)
                self._gates.taken(batch.jobs, now=now)
            self._shares.taken([job for batch in batches for job in _found(batch)], self._needs_of(batches))
        if placed:
            self._see_nodes(batches)
        if not batches:
            # They had expired, a caller has changed them, no node has room, or the partition is another scheduler's.
            for pick in picks:
                self._shares.exhausted(pick.lane)
            if others:
                self._is_stale = True
                self._earliest_read = max(self._earliest_read, self._now() + self._fruitless.next())
            return False
        self._fruitless.reset()
        self._see_ends(picks, batches)
        return True

    async def _take(self, others: list[Pick], placed: list[Pick], batches: list[DispatchBatch]) -> None:
        """Dispatch what was picked, and add the batches."""
        if placed:
            batch = await self._placer.place(placed, self._quotas, self._shares.pools)
            for queue in {pick.lane.queue for pick in placed}:
                self._shares.resize(queue, self._placer.capacity)
            if batch is not None:
                batches.append(batch)
        others, has_put, has_more = await self._passage.passed(others, now=self._now())
        if has_put:
            self._fruitless.reset()
        self._is_stale |= has_more
        if limited := [pick for pick in others if pick.lane.tenant in self._held_back]:
            others = [pick for pick in others if pick.lane.tenant not in self._held_back]
            batch = await self._store.dispatch_within(self._lease.partition, self._lease.epoch, limited, self._quotas)
            if batch is not None:
                batches.append(batch)
        if others:
            batch = await self._store.dispatch(self._lease.partition, self._lease.epoch, others)
            if batch is not None:
                batches.append(batch)

    def _needs_of(self, batches: Iterable[DispatchBatch]) -> dict[str, Amounts]:
        """What jobs that are placed on nodes take of those."""
        return {
            job.id: found[1]
            for batch in batches
            for job in batch.jobs
            if job.node and (found := self._placer.found(job.id)) is not None
        }

    def _see_nodes(self, batches: list[DispatchBatch]) -> None:
        """Where no node has had room, look again later, or once a job has left one; other queues go on meanwhile."""
        if any(self._is_placed(job.queue) for batch in batches for job in batch.jobs):
            self._full.reset()
            return
        self._next_placing = self._now() + self._full.next()
        self._next_poll = min(self._next_poll, self._next_placing)

    async def _refresh(self) -> None:
        """Read the lanes, if there may be new ones and it was not done just now."""
        began = self._now()
        if began < self._earliest_read or (not self._is_stale and began < self._next_poll):
            return
        self._is_stale = False
        self._next_poll = began + _POLL
        try:
            lanes = await self._store.lanes(self._lease.partition)
            # Runs may have to give way to jobs that wait at the broker, also when none waits in the store.
            if (lanes or self._ledger.giving_way) and began >= self._next_sharing:
                self._follow(await self._read_sharing())
                self._quotas = await self._read_quotas()
                self._held_back = self._quotas.held_back()
                self._next_sharing = began + _SHARING
            self._shares.refresh(lanes, await self._heads(lanes))
        except StoreUnavailable:
            self._is_stale = True
            raise
        ended = self._now()
        # Of two readings the shorter one: the first of a connection, or one behind a stall, says little of the next.
        before, self._reading = self._reading, ended - began
        self._earliest_read = ended + max(_PACE, _READING * min(before, self._reading))

    async def _heads(self, lanes: Sequence[Lane]) -> dict[Lane, Head]:
        """The ages of jobs, in queues that go by age."""
        queues = sorted({lane.queue for lane in lanes if self._shares.goes_by_heads(lane.queue)})
        if not queues:
            return {}
        # Who has been served has another first job now.
        self._is_stale = True
        return {
            lane: (head.due / 1000, inf if head.expires is None else head.expires / 1000)
            for lane, head in (await self._store.heads(queues)).items()
        }

    def _follow(self, sharing: Sharing) -> None:
        """Do from now on as operators say."""
        if sharing.version == self._followed:
            return
        self._shares.configure({**self._policies, **sharing.queues}, sharing.pools)
        self._followed = sharing.version
        _log.info("partition %d: follows version %d of policies and pools", self._lease.partition, sharing.version)

    def _see_ends(self, picks: list[Pick], batches: list[DispatchBatch]) -> None:
        found = Counter(Lane(job.queue, job.priority, job.tenant) for batch in batches for job in batch.jobs)
        for pick in picks:
            if found[pick.lane] < pick.count:
                self._shares.exhausted(pick.lane)
                # Those that fit on no node are looked at again when something leaves, or at the next poll.
                is_held = self._is_placed(pick.lane.queue) or pick.lane.tenant in self._held_back
                if pick.count >= _FEW and not is_held:
                    self._next_poll = min(self._next_poll, self._now() + _SOON)

    def _room(self, queue: str) -> int:
        """Of a queue whose jobs go to any worker."""
        if self._is_placed(queue) or self._publisher.is_paused(queue):
            return 0
        return self._window(queue).room(self._slots_of(queue), self._ledger.count(queue), now=self._now())

    def _room_of_nodes(self, queue: str) -> int:
        """Of a queue whose jobs are placed: the nodes say what fits, so any number may be looked at."""
        is_held = self._is_paused(queue) or self._publisher.is_paused(queue)
        return _BATCH if self._is_placed(queue) and not is_held else 0

    def _window(self, queue: str) -> Window:
        found = self._windows.get(queue)
        if found is None:
            found = self._windows[queue] = Window()
        return found

    def _wait(self) -> float:
        """Seconds until there is something to be looked for without a wake."""
        if self._publisher.is_troubled:
            return _POLL
        at = min(max(self._earliest_read, 0.0 if self._is_stale else self._next_poll), self._gates.next())
        return max(at - self._now(), 0.0)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _found(batch: DispatchBatch) -> list[tuple[str, str, Lane]]:
    return [(job.id, job.task, Lane(job.queue, job.priority, job.tenant)) for job in batch.jobs]
