"""Dispatcher: assigns slots to runs, and stops runs that must not continue.

    deliver -> Slots -> FastPath -> settled, or the rest: an item of the Pipeline, executed by the TaskPool

A job that was cancelled while it waited is settled as cancelled at its turn. A running job is asked to stop, and is
stopped after a grace.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.executors import ThreadExecutor
from taskmq.model.commands import Preemption
from taskmq.model.history.redaction import Redactor
from taskmq.model.topology import WorkQueue, is_parcels_queue
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import Guards
from taskmq.worker.intake.parcels import Parcels
from taskmq.worker.intake.resources import ResourcePool
from taskmq.worker.intake.slots import Slots
from taskmq.worker.long_runs.guard import LongRunGuard
from taskmq.worker.pipeline import Pipeline
from taskmq.worker.preemptions import Preemptions
from taskmq.worker.run.arguments import ArgumentLoader
from taskmq.worker.run.crash_counter import CrashCounter
from taskmq.worker.run.fast_path import FastPath, FastPathResult
from taskmq.worker.run.journal_service import JournalService
from taskmq.worker.run.poison import Quarantine
from taskmq.worker.run.processor import Processor
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.stored_journals import StoredJournals
from taskmq.worker.run.task_pool import LOOP_BUDGET, Pause, WorkItem
from taskmq.worker.run_logs import RunLines
from taskmq.worker.settlement.reports import ReportSender
from taskmq.worker.settlement.settle import Settler

_log = logging.getLogger("taskmq.worker")

_INTERRUPT_TIMEOUT: Final = 5.0


class Dispatcher:
    """Starts and stops the runs of one worker.

    Args:
        resources: resources of the worker for tasks that need more than a slot.
        guards: checks that some runs pass before they start.
        cancelled: returns why a job was cancelled, or None; None if jobs cannot be cancelled.
        long_runs: for runs that exceed the broker's timeout.

    Attributes:
        slots: the slots and their deliveries.
        quarantine: counts runs that may be poison; None if crashes are not counted.
        left_behind: runs that did not end although they were cancelled; their jobs were returned.
    """

    def __init__(
        self,
        app: TaskMQ,
        queues: Sequence[WorkQueue],
        config: WorkerConfig,
        executors: Mapping[ExecutorKind, Executor],
        *,
        worker: str,
        stats: WorkerStats,
        resources: ResourcePool,
        guards: Guards,
        cancelled: Callable[[str], str | None] | None,
        long_runs: LongRunGuard | None = None,
        logs: RunLines | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.left_behind = 0
        self._config = config
        self._executors = executors
        self._stats = stats
        self._is_open = True
        in_threads = executors.get("thread")
        self.slots = Slots(
            queues,
            config,
            resources,
            app.sessions.clock,
            stats,
            threads=in_threads if isinstance(in_threads, ThreadExecutor) else None,
            next_item=self._next_item,
            thread_ended=self._thread_ended,
        )
        self._monotonic = self.slots.monotonic
        self._settler = Settler(
            app,
            worker=worker,
            result_limit=config.result_limit,
            result_wait=config.result_wait,
            log_errors=config.log_errors,
            redactor=redactor,
            logs=logs,
        )
        session = app.sessions.current()
        stored = StoredJournals(
            session.broker, self._settler.reports, worker=worker, clock=app.sessions.clock, large=session.large_values
        )
        self._journal = JournalService(app, stored)
        self._parcels = Parcels(give_back=self.slots.give_back, return_part=self._settler.return_part)
        self._processor = Processor(
            app,
            executors,
            config,
            journal_writer=self._journal,
            tell_start=self._settler.tell_start,
            record_of=self._settler.record_of,
        )
        self._preemptions = Preemptions(
            executors,
            self.slots,
            stats,
            settle=self._settle_recalled,
            cancel=self._cancel_task,
        )
        self._fast_path = FastPath(
            app,
            stats,
            keeps_results=self._settler.keeps_results,
            cancelled=cancelled,
            recalled=self._preemptions.recalled,
            journal_writer=self._journal,
            processor=self._processor,
            guards=guards,
            run_begins=self._settler.reports.run_begins,
            settle_stored=self._settler.stored_jobs.settle_success,
            threads=self.slots.threads,
        )
        self.quarantine: Quarantine | None = None
        if config.max_crashes:
            self.quarantine = Quarantine(
                self._processor.run,
                CrashCounter(app),
                most=config.max_crashes,
                running=self.slots.in_tasks,
                threads=self.slots.threads,
                resume=self.slots.call,
            )
        self._pipeline = Pipeline(
            slots=self.slots,
            processor=self._processor,
            settler=self._settler,
            journal=self._journal,
            arguments=ArgumentLoader(app.sessions.current().arguments),
            guards=guards,
            quarantine=self.quarantine,
            long_runs=long_runs,
            stats=stats,
            cancelled=cancelled or _never,
            is_recalled=self._preemptions.is_recalled,
        )

    @property
    def reports(self) -> ReportSender:
        """Publisher of reports on stored jobs."""
        return self._settler.reports

    @property
    def unsettled(self) -> int:
        """Number of jobs that ended here and cannot be settled; each keeps its slot."""
        return self._settler.unsettled

    @property
    def is_busy(self) -> bool:
        """Whether anything runs, waits here, or is reported and not acknowledged."""
        return self.slots.is_busy or self._settler.reports.is_telling

    @property
    def is_finished(self) -> bool:
        """Whether nothing runs, and everything that ran is settled."""
        return not self.slots.running and not self._settler.reports.is_telling

    async def wait_finished(self) -> None:
        """Return once it `is_finished`; nothing may start any more."""
        await self.slots.wait_finished()
        await self._settler.reports.all_told()

    def deliver(self, delivery: Delivery) -> None:
        """Accept a delivery, even one that arrives before the consumer has stopped: it is returned with others.

        An invitation that was redelivered is not run here: another worker may be running it.
        """
        parts = self._parcels.unpack(delivery) if is_parcels_queue(delivery.queue) else (delivery,)
        if delivery.redelivered:
            parts = [each for each in parts if not self._settler.return_redelivered(each)]
        if parts:
            self.slots.put(*parts)

    def stop_taking(self) -> None:
        """Start no more runs."""
        self._is_open = False

    def give_back(self) -> None:
        """Start no more runs, and return everything that has not started."""
        self._is_open = False
        self.slots.give_back_all()

    async def interrupt(self) -> None:
        """Interrupt running jobs and return them; what is being settled is settled."""
        slots = self.slots
        _log.warning("interrupting %d running jobs and returning them to their queues", slots.running)
        self._processor.is_interrupting = True
        if self.quarantine is not None:
            self.quarantine.is_stopping = True
        self._settler.stop_trying()
        for task, delivery in tuple(slots.in_tasks.items()):
            if delivery not in slots.settling:
                task.cancel()
        if slots.threads is not None:
            for attempt in tuple(slots.threads.going):
                slots.threads.give_up(attempt)
        if slots.in_tasks:
            await asyncio.wait(tuple(slots.in_tasks), timeout=_INTERRUPT_TIMEOUT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settler.reports.all_told(), _INTERRUPT_TIMEOUT)
        self.left_behind = slots.give_up()

    async def aclose(self) -> None:
        """Release all resources after the last run."""
        self._parcels.close()
        await self.slots.aclose()
        await self._journal.aclose()
        if self.quarantine is not None:
            await self.quarantine.aclose()

    def _next_item(self) -> tuple[Delivery, WorkItem] | Pause | None:
        """Return the next item. Plain runs that never wait are executed here, up to the first other one."""
        slots = self.slots
        if (settling := slots.take_cancelled()) is not None:
            return settling
        if not self._is_open or (self.quarantine is not None and self.quarantine.is_closed):
            return None
        began = now = self._monotonic()
        room = slots.room
        if (attempt := slots.take_granted(now=now)) is not None:
            return attempt.delivery, self._pipeline.resume(attempt)
        while room and (delivery := slots.take(now=now)) is not None:
            if is_revoked(delivery):
                slots.drop(delivery, now=now)
                continue
            try:
                step = self._fast_path.run(delivery, now=now)
            except BaseException as error:  # noqa: BLE001 - the pool task that looks must live on, and so must its delivery
                slots.end(delivery, error)
                return Pause.LEAVE
            if not isinstance(step, FastPathResult):
                return delivery, self._pipeline.go_on(delivery, step)
            if step is FastPathResult.BEGUN:
                room -= 1
                now = self._monotonic()
                continue
            slots.leave(delivery.queue, now=now)
            if step is FastPathResult.UNCLEAN:
                return Pause.LEAVE
            now = self._fast_path.ended
            if now - began > LOOP_BUDGET:
                return Pause.TURN
        return None

    def _thread_ended(self, attempt: Attempt, value: object, error: BaseException | None) -> None:
        self._pipeline.thread_ended(attempt, value, error)

    def cancel(self, job_id: str, reason: str) -> bool:
        """Stop a job's run: a coroutine immediately, a thread or process after a request and a grace.

        A job that waits for resources is settled now. A job that waits for a slot is settled when it gets one.
        Returns whether there was a run to stop, or a job that waited for resources.
        """

        def settle(attempt: Attempt) -> WorkItem:
            attempt.cancelled = reason
            return self._pipeline.settle_cancelled(attempt)

        if self.slots.withdraw(job_id, settle):
            return True
        found = [attempt for attempt in self._stats.running if attempt.job_id == job_id and attempt.cancelled is None]
        for attempt in found:
            self._stop(attempt, reason)
        return bool(found)

    def preempt(self, jobs: Sequence[Preemption]) -> None:
        """Return those of these stored jobs that are here."""
        self._preemptions.ask(jobs)

    def _settle_recalled(self, attempt: Attempt) -> WorkItem:
        return self._pipeline.settle_recalled(attempt)

    def _stop(self, attempt: Attempt, reason: str) -> None:
        attempt.cancelled = reason
        kind = attempt.task.plan.executor
        if attempt.execution is not None:
            self._executors[kind].ask_to_stop(attempt.execution)
        if kind == "async" or attempt.execution is None:
            self._cancel_task(attempt)
        else:
            asyncio.get_running_loop().call_later(self._config.cancel_grace, self._cancel_task, attempt)

    def _cancel_task(self, attempt: Attempt) -> None:
        if self.slots.threads is not None:
            self.slots.threads.give_up(attempt)
        for task, delivery in self.slots.in_tasks.items():
            if delivery is attempt.delivery and delivery not in self.slots.settling:
                task.cancel()


def _never(_: str) -> None:
    """Report no job as cancelled: without a state none is known to be."""
