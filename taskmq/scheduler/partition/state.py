"""The state of one partition, as its holder knows it.

    arrived, wake  ->  dispatcher  ->  add      jobs are in flight
    publisher, reports, watches    ->  begin    a job is running
                                       leave    a job has left: there may be room
                                       refuse   the broker refuses its queue for now

The services of a partition share this object and the store, and do not know each other. It is synchronous, without a
clock or I/O; times are seconds of the loop's clock. Every change that may allow a dispatch sets `has_work`.
"""

import asyncio
import random
from collections.abc import Iterable, Sequence

from taskmq.contracts.jobs import DispatchBatch, Lane, Pick
from taskmq.model.jobs.pools import Amounts, Sharing
from taskmq.model.jobs.quotas import HeldBack, Quotas
from taskmq.scheduler.fairness import RoundTrips, Shares, Window
from taskmq.scheduler.gates import ClaimWaits, Gates
from taskmq.scheduler.parcels import ShortTasks
from taskmq.scheduler.partition.ledger import Flight, Ledger
from taskmq.scheduler.partition.placements import Placements
from taskmq.scheduler.partition.refused_queues import RefusedQueues
from taskmq.scheduler.partition.rules import AppRules


class PartitionState:
    """The jobs of one partition in flight, the order of turns, and the limits.

    Attributes:
        ledger: jobs in flight, and batches.
        shares: order of turns.
        gates: limits of tasks.
        claims: concurrency limits, idempotency keys and lines that the store decides.
        placements: amounts of nodes that jobs in flight use.
        pauses: queues whose messages the broker refuses.
        short_tasks: tasks whose jobs may travel together.
        trips: durations of round trips to the store and the broker, which windows have to cover.
        quotas, held_back: quotas of tenants, as last read.
        in_hand: jobs, with their tokens, that are being published or will be republished.
        dispatched: jobs that were dispatched since the partition was acquired.
        has_work: set when there may be jobs to dispatch.
        is_stale: whether lanes may have jobs that are not known here.
        has_node_news: whether a job has left its node since this was last set to False.
        is_ending: set when the partition has to be released.
        is_given_up: set when the release does not wait for reports; the next holder gets them.
    """

    def __init__(self, rules: AppRules) -> None:
        self.rules = rules
        self.ledger = Ledger(gives_way=rules.gives_way, runs_once=rules.runs_once)
        self.shares = Shares()
        self.shares.configure(rules.policies, {})
        self.gates = Gates(rules.demands(), dice=random.random)
        self.claims = ClaimWaits(rules.claims().of)
        self.placements = Placements()
        self.pauses = RefusedQueues()
        self.short_tasks = ShortTasks()
        self.trips = RoundTrips()
        self.quotas = Quotas()
        self.held_back = HeldBack()
        self.in_hand: set[tuple[str, int]] = set()
        self.dispatched = 0
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
        """Whether the broker does not accept messages at the moment."""
        return self._outages > 0

    def begin_outage(self) -> None:
        """Record that the broker does not accept a batch."""
        self._outages += 1

    def end_outage(self) -> None:
        """Record that the broker accepts a batch again, or that it was given up."""
        self._outages -= 1
        self.has_work.set()

    def wake(self) -> None:
        """Have all lanes read again, because some may have new jobs."""
        self.is_stale = True
        self.has_work.set()

    def arrive(self, lanes: Iterable[Lane]) -> None:
        """Record that these lanes have ready jobs."""
        for lane in lanes:
            if self.shares.goes_by_heads(lane.queue):
                # The head of the lane has to be read.
                self.is_stale = True
            else:
                self._arrived[lane] = None
        self.has_work.set()

    def admit_arrived(self) -> None:
        """Let the lanes recorded since the last call take turns."""
        arrived, self._arrived = self._arrived, {}
        for lane in arrived:
            self.shares.add(lane)

    def follow(self, sharing: Sharing, quotas: Quotas) -> bool:
        """Apply the operators' settings. Returns whether the policies and pools have a new version."""
        self.quotas = quotas
        self.held_back = quotas.held_back()
        if sharing.version == self._version:
            return False
        self.shares.configure({**self.rules.policies, **sharing.queues}, sharing.pools)
        self._version = sharing.version
        return True

    def add(self, batches: Sequence[DispatchBatch], *, now: float) -> None:
        """Record the jobs of these batches as in flight, including those of an earlier holder."""
        for batch in batches:
            self._free([(job_id, None) for job_id in self.ledger.add(batch)])
            self.placements.keep(batch, now=now)
            self.gates.add(batch.jobs, now=now)
            self.claims.add(batch.jobs)
        needs: dict[str, Amounts] = {
            job.id: found[1]
            for batch in batches
            for job in batch.jobs
            if job.node and (found := self.placements.find(job.id)) is not None
        }
        jobs = [
            (job.id, job.task, Lane(job.queue, job.priority, job.tenant)) for batch in batches for job in batch.jobs
        ]
        self.shares.resolve(jobs, needs)

    def begin(self, job_id: str, *, now: float, ran: float = 0.0, worker: str = "") -> None:
        """Record that a job is running, and its worker.

        Args:
            ran: seconds that it has already run, if an earlier holder dispatched it.
        """
        self.ledger.begin(job_id, worker)
        self.shares.start(job_id, now=now, ran=ran)

    def leave(self, job_id: str, token: int, *, seconds: float | None = None) -> Flight | None:
        """Remove a job that was reported, withdrawn or ended, and free its resources.

        Returns None and changes nothing if it is not in flight with this token.

        Args:
            seconds: how long it ran; 0: not at all; None: unknown.
        """
        return self.leave_all([(job_id, token, seconds)])[0]

    def leave_all(self, jobs: Sequence[tuple[str, int, float | None]]) -> list[Flight | None]:
        """Remove jobs that were reported, with the same effect as one by one; see `leave`.

        Args:
            jobs: id, token and seconds of each.
        """
        flights = [self.ledger.leave(job_id, token) for job_id, token, _ in jobs]
        self._free(
            [
                (job_id, seconds)
                for (job_id, _, seconds), flight in zip(jobs, flights, strict=True)
                if flight is not None
            ]
        )
        return flights

    def count_ended(self, queue: str, count: int, *, now: float) -> None:
        """Record that jobs of a queue ended; its window follows their rate."""
        self._window(queue).record_ended(count, now=now)
        if self.shares or self.gates.are_closed:
            self.has_work.set()

    def refuse(self, queue: str, reason: str, *, now: float) -> float | None:
        """Pause a queue that the broker refuses. Returns the seconds of the pause; None if it is already paused."""
        return self.pauses.refuse(queue, reason, now=now)

    def window(self, queue: str, slots: int | None, *, now: float) -> int:
        """Return how many jobs of a queue may be in flight.

        Args:
            slots: slots of live workers that consume the queue; None: unknown.
        """
        return self._window(queue).size(slots, now=now)

    def room(self, queue: str, slots: int | None, *, now: float) -> int:
        """Return how many more jobs of a queue may be dispatched to its workers; 0 for a placed queue.

        Args:
            slots: slots of live workers that consume the queue; None: unknown.
        """
        if self.rules.is_placed(queue) or self.pauses.is_paused(queue, now=now):
            return 0
        return self._window(queue).room(slots, self.ledger.count(queue), now=now)

    def is_free_for(self, queue: str, slots: int | None, *, now: float) -> bool:
        """Whether a new job of a queue may be dispatched at once: it has room, and nothing else has to be decided.

        Args:
            slots: slots of live workers that consume the queue; None: unknown.
        """
        is_busy = self.is_troubled or self.is_stale or self._arrived or self.shares or self.is_ending.is_set()
        has_rules = (
            self.shares.pools
            or self.held_back
            or self.gates.may_have_limits(queue, now=now)
            or self.claims.may_wait(queue, now=now)
        )
        return not is_busy and not has_rules and self.room(queue, slots, now=now) > 0

    def exhaust(self, picks: Sequence[Pick]) -> None:
        """Ignore these lanes until they are read again, because they had fewer jobs than were picked."""
        for pick in picks:
            self.shares.drop(pick.lane)

    def give_up(self) -> None:
        """Have the partition released without waiting for jobs in flight.

        Its next holder takes over all of them, including dispatched jobs that are not known here.
        """
        self.is_given_up.set()
        self.is_ending.set()

    def _free(self, left: Sequence[tuple[str, float | None]]) -> None:
        self.shares.end_all(left)
        has_node_news = False
        for job_id, seconds in left:
            has_freed = self.claims.remove(job_id)
            if self.gates.remove(job_id) or has_freed:
                self.has_work.set()
            has_node_news |= self.placements.leave(job_id, seconds)
        if has_node_news:
            # There is room on a node, perhaps for a job that fitted nowhere.
            self.has_node_news = True
            self.wake()
        elif left and self.held_back:
            # Their quotas may have room again.
            self.wake()

    def _window(self, queue: str) -> Window:
        found = self._windows.get(queue)
        if found is None:
            found = self._windows[queue] = Window(self.trips)
        return found
