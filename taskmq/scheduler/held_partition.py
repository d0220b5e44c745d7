"""The work for one partition, while this scheduler holds it.

    take over from an earlier holder, then all of these concurrently, around one `PartitionState`:
      batches      records confirmed and ended batches in the store
      reports      -> applied -> room for more
      dispatcher   lanes -> batches -> published
      timers       due -> ready
      schedules    due -> jobs
      watch        repeated cancel requests, lost jobs
      preemption   stops runs if a pool has less than its guarantee

A partition that is released ends in order: dispatching stops, published batches are confirmed, received reports are
applied, jobs that these returned are published, and the store records all of it. The work for a lost partition just
stops.
"""

import asyncio
import logging
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import DispatchBatch, JobStore
from taskmq.durable.service import ServiceGroup, pause, unless_set
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.states import JobState
from taskmq.model.topology import reports_queue
from taskmq.scheduler.batches import BatchRecorder
from taskmq.scheduler.dependents import DependentReleases, ReactionTable
from taskmq.scheduler.dispatch import JobDispatcher
from taskmq.scheduler.firing import ScheduleTurns, Timers
from taskmq.scheduler.firing.due_loop import FiringPace, StoreClock
from taskmq.scheduler.invitations import InvitationPublisher
from taskmq.scheduler.lost_jobs import InFlightWatch
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partition import AppRules, PartitionState
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.pauses import PausedQueues
from taskmq.scheduler.preemption import PreemptionWatch
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.reports import (
    AcceptedResults,
    ParkedReports,
    ReportApplier,
    ReportConsumer,
    ReportedJournals,
    ReportsQueue,
    ReturnedJobs,
)
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts
from taskmq.scheduler.wakeups import Wakeups

_log = logging.getLogger("taskmq.scheduler")

_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GRACE: Final = 6.0


class HeldPartition:
    """The work for one partition.

    Args:
        clock, pace, proofs: shared by all partitions of this process.
        paused: queues that operators have paused.
        releases: releases jobs that waited for others.
        runs: advances runs of workflows.
        reactions: calls reactions to ended jobs.
    """

    def __init__(
        self,
        app: TaskMQ,
        store: JobStore,
        lease: HeldLease,
        workers: LiveWorkers,
        *,
        clock: StoreClock,
        pace: FiringPace,
        proofs: InvitationProofs,
        paused: PausedQueues,
        wakeups: Wakeups,
        releases: DependentReleases,
        runs: RunAdvances,
        reactions: ReactionTable,
        counts: SchedulerCounts,
    ) -> None:
        session = app.sessions.current()
        self._store = store.dispatching
        self._now_ms = store.now_ms
        self.lease = lease
        self.state = PartitionState(AppRules(app, has_state=session.stores.limits is not None))
        queue = ReportsQueue(session, reports_queue(app.name, lease.partition))
        self._publisher = InvitationPublisher(
            session,
            store.dispatching,
            self.state,
            workers,
            journals=store.journals,
            lease=lease,
            reports=queue,
            proofs=proofs,
            counts=counts,
        )
        self._placer = Placer(store, lease, self.state)
        self.dispatcher = JobDispatcher(
            store,
            lease,
            self.state,
            publisher=self._publisher,
            placer=self._placer,
            workers=workers,
            paused=paused,
            on_ready=wakeups.wake_lanes,
            counts=counts,
        )
        self.timers = Timers(store, lease, clock, pace=pace, on_ready=wakeups.wake_lanes, counts=counts)
        self._schedules = ScheduleTurns(app, store, lease, clock, on_ready=wakeups.wake_lanes, counts=counts)
        self._batches = BatchRecorder(store.dispatching, self.state.ledger)
        returned = ReturnedJobs(
            store.dispatching,
            self.state,
            lease=lease,
            locate=self._placer.locate,
            publish=self.dispatcher.publish_again,
        )
        parked = ParkedReports(session, app.sessions.clock, name=queue.name)
        journals = ReportedJournals(session.broker, store.journals)
        applier = ReportApplier(
            store,
            self.state,
            name=queue.name,
            returned=returned,
            parked=parked,
            journals=journals,
            results=AcceptedResults(app, store),
            wakeups=wakeups,
            releases=releases,
            runs=runs,
            reactions=reactions,
            counts=counts,
        )
        self._reports = ReportConsumer(
            session, store, self.state, queue=queue, applier=applier, journals=journals, parked=parked, counts=counts
        )
        self._watch = InFlightWatch(
            session,
            store,
            self.state,
            workers,
            lease=lease,
            reports=self._reports,
            returned=returned,
            placer=self._placer,
            counts=counts,
        )
        self._preemption = PreemptionWatch(
            session, store, self.state, workers, partition=lease.partition, counts=counts
        )
        self._recording = ServiceGroup()
        self._work = ServiceGroup()
        self._is_lost = False
        self._drains = False

    def __repr__(self) -> str:
        return f"<HeldPartition {self.lease.partition} epoch={self.lease.epoch}>"

    def stop(self) -> None:
        """Have `run` return once current work has ended, even if it drains."""
        self.state.give_up()

    def drain(self) -> None:
        """Stop dispatching, and have `run` return once all jobs in flight are reported."""
        self._drains = True
        self.dispatcher.stop()
        self.state.is_ending.set()

    def lose(self) -> None:
        """Have `run` return at once, because another scheduler may hold the partition."""
        self._is_lost = True
        self.dispatcher.abandon()
        for service in (self.timers, self._schedules, self._watch, self._preemption, self._reports, self._batches):
            service.stop()
        # Otherwise a store that does not answer would delay each service.
        self._recording.hurry()
        self._work.hurry()
        self.stop()

    async def run(self) -> None:
        """Work until `stop`, `drain` or `lose`."""
        batches = await self._take_over()
        if batches is None:
            return
        name = f"of partition {self.lease.partition}"
        async with self._recording as recording:
            await recording.start(self._batches, f"informs the store of batches {name}", grace=_GRACE)
            try:
                await self._run_work(name)
            finally:
                await self.dispatcher.aclose()

    async def _run_work(self, name: str) -> None:
        async with self._work as group:
            await group.start(self._reports, f"reads reports {name}", grace=_GRACE)
            await group.start(self._watch, f"watches jobs in flight {name}")
            await group.start(self._preemption, f"asks runs to give way {name}")
            await group.start(self.timers, f"fires timers {name}", grace=_GRACE)
            await group.start(self._schedules, f"fires schedules {name}", grace=_GRACE)
            await group.start(self.dispatcher, f"dispatches jobs {name}", grace=_GRACE)
            await self.state.is_ending.wait()
            if self._drains:
                ledger = self.state.ledger
                _log.info("partition %d: waiting for the reports of %d jobs", self.lease.partition, len(ledger))
                await unless_set(self.state.is_given_up, ledger.is_drained.wait())
            if self._is_lost:
                # While the services end, nothing may be published.
                await self.dispatcher.aclose()

    async def _take_over(self) -> list[DispatchBatch] | None:
        """Take over the batches of earlier holders; return None if the partition is to be given back."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while not self.state.is_ending.is_set():
            try:
                running = await self._running()
                left = await self._store.take_over(self.lease.partition, self.lease.epoch)
            except StoreUnavailable as error:
                if not backoff.failures:
                    _log.warning("partition %d: take-over failed, will retry: %s", self.lease.partition, error)
                if not error.is_certain:
                    # The answer may be lost and is not repeated, so the partition is released and acquired anew.
                    return None
                await pause(self.state.is_ending, backoff.next())
                continue
            batches = [await self._locate(batch) for batch in left]
            now = asyncio.get_running_loop().time()
            for batch in batches:
                self.state.add([batch], now=now)
            for job_id, (seconds, worker) in running.items():
                self.state.begin(job_id, now=now, ran=seconds, worker=worker)
            for batch in batches:
                if batch.confirmed:
                    self.state.ledger.confirm(batch.id)
            # The last step, so nothing is being published if an earlier one fails.
            self.dispatcher.publish_left(
                [batch for batch in batches if not batch.confirmed], has_caught_up=self._reports.has_caught_up
            )
            return batches
        return None

    async def _running(self) -> dict[str, tuple[float, str]]:
        """Return the running jobs of earlier holders: for how many seconds they have run, and at which worker."""
        now = await self._now_ms()
        records = await self._store.in_flight(self.lease.partition, dispatched_before=now)
        return {
            record.id: (max(now - record.started, 0) / 1000, record.worker)
            for record in records
            if record.state is JobState.RUNNING and record.started is not None
        }

    async def _locate(self, batch: DispatchBatch) -> DispatchBatch:
        """Add to the jobs of a batch the nodes that they were placed on."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while any(self.state.rules.is_placed(job.queue) for job in batch.jobs):
            try:
                return await self._placer.locate(batch)
            except StoreUnavailable:
                if await pause(self.state.is_ending, backoff.next()):
                    break
        return batch
