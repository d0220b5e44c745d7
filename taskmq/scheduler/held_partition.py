"""The work of one partition, for as long as this scheduler holds it.

    take over what an earlier holder has left, then all at once:
      ledger       what is in flight; tells the store which batches are confirmed and which are gone
      reports      -> applied -> room for more
      dispatcher   lanes -> batches -> published
      timers       due -> ready
      schedules    due -> jobs
      watch        cancels that are repeated, jobs that are lost
      preemption   runs that give way, where a pool is owed its share

A partition that is given back ends in order: nothing new is dispatched, what is with the publisher is confirmed,
reports in hand are applied, and the store knows of it. One that is lost just stops.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import DispatchBatch, JobStore, Lane
from taskmq.durable.service import ServiceGroup, pause, unless_set
from taskmq.errors import InvalidOption, StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.states import JobState
from taskmq.model.topology import reports_queue
from taskmq.scheduler.dispatch import JobDispatcher
from taskmq.scheduler.firing import ScheduleTurns
from taskmq.scheduler.firing.due_loop import FiringPace, StoreClock
from taskmq.scheduler.gates import GatePassage, Gates, TaskDemands
from taskmq.scheduler.ledger import Ledger
from taskmq.scheduler.lost_jobs import InFlightWatch
from taskmq.scheduler.nodes import Placer
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.preemption import PreemptionWatch, gives_way
from taskmq.scheduler.proofs import InvitationProofs
from taskmq.scheduler.publish import InvitationPublisher
from taskmq.scheduler.reports import AcceptedResults, ParkedReports, ReportConsumer
from taskmq.scheduler.signals import LiveWorkers
from taskmq.scheduler.status import SchedulerCounts
from taskmq.scheduler.timers import Timers

__all__ = ["HeldPartition"]

_log = logging.getLogger("taskmq.scheduler")

_UNKNOWN_RUN: Final = "it is unknown whether it was run: its scheduler died, and ack='early' never runs a job twice"
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_GRACE: Final = 6.0


class HeldPartition:
    """One partition at work.

    Args:
        clock, pace, proofs: of all partitions of this process.
        is_paused: whether operators have paused a queue whose jobs are placed on nodes.
        fired: called with lanes, of whichever partition, that have got jobs which are ready.
        again: called with a job, its queue, and the seconds after which it is to run again; 0: it is ready.
        upstream_ended: called when jobs have ended that others wait for.
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
        is_paused: Callable[[str], bool],
        fired: Callable[[set[Lane]], None],
        again: Callable[[str, str, float], None],
        upstream_ended: Callable[[], None],
        counts: SchedulerCounts,
    ) -> None:
        session = app.sessions.current()
        self._app = app
        self._store = store.dispatching
        self._now_ms = store.now_ms
        self.lease = lease
        self._counts = counts
        reports = reports_queue(app.name, lease.partition)
        self.ledger = Ledger(
            store.dispatching, left=self._left, gives_way=lambda job: gives_way(job, app.tasks.by_name)
        )
        self.publisher = InvitationPublisher(
            session,
            store.dispatching,
            self.ledger,
            lease=lease,
            began=self._began,
            reports=reports,
            prove=proofs.prove,
            queue=app.producer.queue,
            runs_once=self._runs_once,
            counts=counts,
            room=self._has_room,
        )
        placer = self._placer = Placer(store, lease, is_paused=self.publisher.is_paused)
        self.dispatcher = JobDispatcher(
            store.dispatching,
            lease,
            self.ledger,
            self.publisher,
            slots_of=workers.slots_of,
            policies=app.producer.policies(),
            sharing=store.sharing,
            quotas=store.quotas,
            passage=GatePassage(Gates(TaskDemands(app.tasks.by_name.values())), store.dispatching, lease),
            placer=placer,
            is_placed=self._is_placed,
            is_paused=is_paused,
            unsure=self.stop,
            counts=counts,
        )
        self.timers = Timers(store, lease, clock, pace=pace, fired=fired, counts=counts)
        self._schedules = ScheduleTurns(app, store, lease, clock, fired=fired, counts=counts)
        self._reports = ReportConsumer(
            session,
            store,
            self.ledger,
            name=reports,
            declare=self.publisher.declare_reports,
            parked=ParkedReports(session, app.sessions.clock, name=reports),
            results=AcceptedResults(app, store),
            began=self.dispatcher.began,
            turned_back=self.dispatcher.turned_back,
            ended=self.dispatcher.ended,
            again=again,
            upstream_ended=upstream_ended,
            counts=counts,
        )
        self._watch = InFlightWatch(
            session,
            store,
            self.ledger,
            workers,
            lease=lease,
            reports=reports,
            is_publishing=self.publisher.has,
            is_idle=lambda: self._reports.is_idle,
            runs_once=self._runs_once,
            again=self.dispatcher.wake,
            queue_of=placer.queue_of,
            lost=placer.lost,
            counts=counts,
        )
        self._preemption = PreemptionWatch(
            session,
            store,
            self.ledger,
            placer,
            partition=lease.partition,
            slots_of=workers.slots_of,
            described=self.dispatcher.described,
            is_placed=self._is_placed,
            counts=counts,
        )
        self._is_stopping = asyncio.Event()
        self._is_lost = False
        self._drains = False
        self._gives_up = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HeldPartition {self.lease.partition} epoch={self.lease.epoch}>"

    def stop(self) -> None:
        """Have `run` return once what is under way has ended, also where it drains."""
        self._gives_up.set()
        self._is_stopping.set()

    def drain(self) -> None:
        """Dispatch nothing more, and have `run` return once everything in flight was reported."""
        self._drains = True
        self.dispatcher.stop()
        self._is_stopping.set()

    def lose(self) -> None:
        """Another scheduler may hold the partition: have `run` return at once."""
        self._is_lost = True
        self.dispatcher.abandon()
        for service in (self.timers, self._schedules, self._watch, self._preemption, self._reports, self.ledger):
            service.stop()
        self.stop()

    async def run(self) -> None:
        """Work until `stop`, `drain` or `lose`."""
        batches = await self._take_over()
        if batches is None:
            return
        async with ServiceGroup() as group:
            await group.start(
                self.ledger, f"tells the store of batches of partition {self.lease.partition}", grace=_GRACE
            )
            await group.start(self._reports, f"reads reports of partition {self.lease.partition}", grace=_GRACE)
            await group.start(self._watch, f"watches jobs in flight of partition {self.lease.partition}")
            await group.start(self._preemption, f"asks runs of partition {self.lease.partition} to give way")
            await group.start(self.timers, f"fires timers of partition {self.lease.partition}", grace=_GRACE)
            await group.start(self._schedules, f"fires schedules of partition {self.lease.partition}", grace=_GRACE)
            await group.start(self.dispatcher, f"dispatches partition {self.lease.partition}", grace=_GRACE)
            await self._is_stopping.wait()
            if self._drains:
                _log.info("partition %d: waiting for the reports of %d jobs", self.lease.partition, len(self.ledger))
                await unless_set(self._gives_up, self.ledger.wait_until_drained())
            if self._is_lost:
                # A store that does not answer would hold up each of them, and the reports in hand.
                group.hurry()

    async def _take_over(self) -> list[DispatchBatch] | None:
        """What an earlier holder has left is in flight here; None where the partition is to be given back."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while not self._is_stopping.is_set():
            try:
                running = await self._running()
                left = await self._store.take_over(self.lease.partition, self.lease.epoch)
            except StoreUnavailable as error:
                if not backoff.failures:
                    _log.warning("partition %d is not taken over for now: %s", self.lease.partition, error)
                if not error.is_certain:
                    # What was answered is not given a second time: the partition is given back, and taken anew.
                    return None
                await pause(self._is_stopping, backoff.next())
                continue
            batches = [await self._located(batch) for batch in left]
            for batch in batches:
                self.dispatcher.resume(batch)
            for job_id, seconds in running.items():
                self.dispatcher.began(job_id, ran=seconds)
            await self._go_on_with(batches)
            return batches
        return None

    async def _running(self) -> dict[str, float]:
        """For how long jobs have run that an earlier holder has dispatched, in seconds."""
        now = await self._now_ms()
        records = await self._store.in_flight(self.lease.partition, dispatched_before=now)
        return {
            record.id: max(now - record.started, 0) / 1000
            for record in records
            if record.state is JobState.RUNNING and record.started is not None
        }

    async def _located(self, batch: DispatchBatch) -> DispatchBatch:
        """The batch, whose jobs know the nodes that they were placed on."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while any(self._is_placed(job.queue) for job in batch.jobs):
            try:
                return await self._placer.located(batch)
            except StoreUnavailable:
                if await pause(self._is_stopping, backoff.next()):
                    break
        return batch

    async def _go_on_with(self, batches: Sequence[DispatchBatch]) -> None:
        """Publish again what was not confirmed and is not known to run.

        That is the last step: where an earlier one fails, nothing is being published for a partition that is given
        back.
        """
        for batch in batches:
            if batch.confirmed:
                self.ledger.confirmed(batch.id)
        rest = [batch for batch in batches if not batch.confirmed]
        waiting = [job for batch in rest for job in batch.jobs if self.ledger.waits(job.id, job.token)]
        if waiting:
            count = len(waiting)
            _log.warning(
                "partition %d: %d jobs were not confirmed; publishing them again", self.lease.partition, count
            )
        once = [job for job in waiting if self._runs_once(job.task)]
        if not await self.publisher.fail(once, reason=_UNKNOWN_RUN) or self._is_lost:
            return
        for batch in rest:
            self.dispatcher.publish_again(batch)

    def _is_placed(self, queue: str) -> bool:
        try:
            return self._app.producer.queue(queue).placed
        except InvalidOption:
            # A version that knew other rules has submitted to it: the publisher pauses the queue, and says why.
            return False

    def _runs_once(self, task: str) -> bool:
        return task in self._app.tasks and self._app.tasks[task].plan.ack == "early"

    def _began(self, job_id: str) -> None:
        self.dispatcher.began(job_id)

    def _has_room(self) -> None:
        self.dispatcher.has_room()

    def _left(self, job_id: str, seconds: float | None) -> None:
        self.dispatcher.left(job_id, seconds)
