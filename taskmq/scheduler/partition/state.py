"""The state of one partition, as its holder knows it.

    arrived, wake  ->  dispatcher  ->  add      jobs are in flight
    publisher, reports, watches    ->  begin    a job is known to run
                                       leave    it is not in flight any more: there may be room
                                       refuse   its queue takes nothing for now

The services of a partition hold this object and the store, and not each other. It is synchronous, has no clock and
does no I/O: times are seconds of the loop's clock. Whatever may let the dispatcher do something sets `has_work`.
"""

import asyncio
from collections.abc import Iterable, Sequence

from taskmq.contracts.jobs import DispatchBatch, Lane, Pick
from taskmq.model.jobs.pools import Amounts, Sharing
from taskmq.model.jobs.quotas import HeldBack, Quotas
from taskmq.scheduler.fairness import Shares, Window
from taskmq.scheduler.gates import Gates
from taskmq.scheduler.partition.ledger import Flight, Ledger
from taskmq.scheduler.partition.placements import Placements
from taskmq.scheduler.partition.refused_queues import RefusedQueues
from taskmq.scheduler.partition.rules import AppRules

__all__ = ["PartitionState"]


class PartitionState:
    """The jobs of one partition in flight, whose turn is next, and what holds them back.

    Attributes:
        ledger: jobs in flight, and batches.
        shares: whose turn it is.
        gates: limits of tasks.
        placements: what jobs in flight have of nodes.
        pauses: queues to which the broker takes nothing.
        quotas, held_back: what operators allow tenants, as it was last read.
        in_hand: jobs, with their tokens, that are being published, or will be again.
        has_work: set when there may be something to dispatch.
        is_stale: whether lanes may have got jobs that are not known here.
        has_node_news: whether a job has left its node since this was last set to False.
        is_ending: set when the partition is to be given back.
        is_given_up: set when that does not wait for the reports of what is in flight: its next holder gets them.
    """

    def __init__(self, rules: AppRules) -> None:
        self.rules = rules
        self.ledger = Ledger(gives_way=rules.gives_way)
        self.shares = Shares()
        self.shares.configure(rules.policies, {})
        self.gates = Gates(rules.demands())
        self.placements = Placements()
        self.pauses = RefusedQueues()
        self.quotas = Quotas()
        self.held_back = HeldBack()
        self.in_hand: set[tuple[str, int]] = set()
        self.has_work = asyncio.Event()
        self.is_stale = True
        self.has_node_news = False
        self.is_ending = asyncio.Event()
        self.is_given_up = asyncio.Event()
        self._arrived: dict[Lane, None] = {}
        self._windows: dict[str, Window] = {}
        self._outages = 0
        self._version = 0

    @property
    def is_troubled(self) -> bool:
        """Whether the broker does not take what is to be published."""
        return self._outages > 0

    def begin_outage(self) -> None:
        """Note that the broker does not take a batch."""
        self._outages += 1

    def end_outage(self) -> None:
        """Note that the broker takes a batch again, or that it was given up."""
        self._outages -= 1
        self.has_work.set()

    def wake(self) -> None:
        """Have all lanes read again: some may have got jobs."""
        self.is_stale = True
        self.has_work.set()

    def arrive(self, lanes: Iterable[Lane]) -> None:
        """Note that these lanes have got jobs that are ready."""
        for lane in lanes:
            if self.shares.goes_by_heads(lane.queue):
                # The ages of its jobs have to be read.
                self.is_stale = True
            else:
                self._arrived[lane] = None
        self.has_work.set()

    def admit_arrived(self) -> None:
        """Have the lanes take turns that have got jobs since the last call."""
        arrived, self._arrived = self._arrived, {}
        for lane in arrived:
            self.shares.arrived(lane)

    def follow(self, sharing: Sharing, quotas: Quotas) -> bool:
        """Do from now on as operators say; return whether that is another version of policies and pools."""
        self.quotas = quotas
        self.held_back = quotas.held_back()
        if sharing.version == self._version:
            return False
        self.shares.configure({**self.rules.policies, **sharing.queues}, sharing.pools)
        self._version = sharing.version
        return True

    def add(self, batches: Sequence[DispatchBatch], *, now: float) -> None:
        """Note that the jobs of these batches are in flight, also those that an earlier holder has dispatched."""
        for batch in batches:
            for job_id in self.ledger.add(batch):
                self._free(job_id, None)
            self.placements.keep(batch, now=now)
            self.gates.taken(batch.jobs, now=now)
        needs: dict[str, Amounts] = {
            job.id: found[1]
            for batch in batches
            for job in batch.jobs
            if job.node and (found := self.placements.find(job.id)) is not None
        }
        jobs = [
            (job.id, job.task, Lane(job.queue, job.priority, job.tenant)) for batch in batches for job in batch.jobs
        ]
        self.shares.taken(jobs, needs)

    def begin(self, job_id: str, *, now: float, ran: float = 0.0, worker: str = "") -> None:
        """Note that a job is known to run, at this worker.

        Args:
            ran: for how many seconds it has run already, where an earlier holder has dispatched it.
        """
        self.ledger.begin(job_id, worker)
        self.shares.began(job_id, now=now, ran=ran)

    def leave(self, job_id: str, token: int, *, seconds: float | None = None) -> Flight | None:
        """Remove a job that was reported, withdrawn or ended, and free what it had.

        None, and nothing is changed, where it is not in flight under this token.

        Args:
            seconds: for which it has run, 0: it never did; None: unknown.
        """
        flight = self.ledger.leave(job_id, token)
        if flight is not None:
            self._free(job_id, seconds)
        return flight

    def count_ended(self, queue: str, count: int, *, now: float) -> None:
        """Note that so many jobs of a queue were reported: its window follows their rate."""
        self._window(queue).ended(count, now=now)
        if self.shares or self.gates.are_closed:
            self.has_work.set()

    def refuse(self, queue: str, reason: str, *, now: float) -> float | None:
        """Pause a queue to which the broker takes nothing; return for how long, or None where it is paused."""
        return self.pauses.refuse(queue, reason, now=now)

    def window(self, queue: str, slots: int | None, *, now: float) -> int:
        """Return how many jobs of a queue may be in flight.

        Args:
            slots: of live workers that consume the queue; None: unknown.
        """
        return self._window(queue).size(slots, now=now)

    def room(self, queue: str, slots: int | None, *, now: float) -> int:
        """Return how many more jobs of a queue may be dispatched that go to any of its workers; 0 for a placed one.

        Args:
            slots: of live workers that consume the queue; None: unknown.
        """
        if self.rules.is_placed(queue) or self.pauses.is_paused(queue, now=now):
            return 0
        return self._window(queue).room(slots, self.ledger.count(queue), now=now)

    def exhaust(self, picks: Sequence[Pick]) -> None:
        """Have these lanes wait until they are read again: they had fewer jobs than were picked."""
        for pick in picks:
            self.shares.exhausted(pick.lane)

    def give_up(self) -> None:
        """Have the partition given back without waiting for what is in flight.

        Where the store may have dispatched jobs that are not known here, its next holder gets them.
        """
        self.is_given_up.set()
        self.is_ending.set()

    def _free(self, job_id: str, seconds: float | None) -> None:
        self.shares.ended(job_id, seconds)
        if self.gates.left(job_id):
            self.has_work.set()
        if self.placements.leave(job_id, seconds):
            # There is room on its node, perhaps for one that had none before.
            self.has_node_news = True
            self.wake()
        elif self.held_back:
            # There is room in its quota.
            self.wake()

    def _window(self, queue: str) -> Window:
        found = self._windows.get(queue)
        if found is None:
            found = self._windows[queue] = Window()
        return found
