"""The path of one delivery, from its bytes to its settled outcome, in the order of the methods.

    FastPath       decode; a plain run that needs nothing more ends here
    _process       waits: a shard (OrderedShards), a standby (LongRunGuard), resources (Slots)
    _run           large arguments (ArgumentLoader), permits (Guards), then the function (Processor, in the
                   Quarantine if it may be poison)
    _conclude      the run is over: counted, and settled here if no wait is needed
    _settle        journal, permits, result, copy and ack (JournalService, Settler, OrderedShards)

Each segment ends the delivery, sets it aside, or passes it on to the next one. A run that ended in a thread enters at
`thread_ended`, an attempt that waited for resources at `resume`, a cancelled one at `settle_cancelled`.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable

from taskmq.contracts.broker import Delivery
from taskmq.durable.service import is_interruption
from taskmq.errors import StateUnavailable
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import OUTCOME_NAMES, Cancelled, Dead, Interrupted, Outcome, Parked, Retried, Snoozed
from taskmq.model.topology import is_shard
from taskmq.model.units import to_ms
from taskmq.run.context import current_context
from taskmq.worker.attempt import Attempt
from taskmq.worker.guards.base import Guards
from taskmq.worker.intake.slots import Slots
from taskmq.worker.long_runs.guard import LongRunGuard
from taskmq.worker.preemptions import RECALLED
from taskmq.worker.run.arguments import ArgumentLoader
from taskmq.worker.run.fast_path import EndedRun, WaitingRun
from taskmq.worker.run.journal_service import JournalService
from taskmq.worker.run.poison import Quarantine
from taskmq.worker.run.processor import Processor
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import WorkItem
from taskmq.worker.settlement.settle import Settler

_log = logging.getLogger("taskmq.worker")


class Pipeline:
    """Executes the deliveries of one worker.

    Args:
        cancelled: returns why a job was cancelled, or None.
        is_recalled: returns whether a job must be returned without a run.
        quarantine: runs attempts that may be poison; None if crashes are not counted.
        long_runs: for runs that exceed the broker's timeout.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        processor: Processor,
        settler: Settler,
        journal: JournalService,
        arguments: ArgumentLoader,
        guards: Guards,
        quarantine: Quarantine | None,
        long_runs: LongRunGuard | None,
        stats: WorkerStats,
        cancelled: Callable[[str], str | None],
        is_recalled: Callable[[Envelope], bool],
    ) -> None:
        self._slots = slots
        self._shards = slots.shards
        self._processor = processor
        self._settler = settler
        self._journal = journal
        self._arguments = arguments
        self._guards = guards
        self._quarantine = quarantine
        self._long_runs = long_runs
        self._stats = stats
        self._cancelled = cancelled
        self._is_recalled = is_recalled
        # A settlement after a run in a thread does not inherit the variables of the run.
        self._variables = contextvars.copy_context()

    def go_on(self, delivery: Delivery, step: EndedRun | WaitingRun | Envelope | Parked) -> WorkItem:
        """Return the work item that remains of a delivery after the fast path."""
        # The most frequent first.
        if isinstance(step, WaitingRun):
            return self._go_on(step)
        if isinstance(step, EndedRun):
            return self._conclude(step.attempt, step.outcome)
        if isinstance(step, Envelope):
            return self._process(delivery, self._processor.identify(delivery, step))
        return self._process(delivery, step)

    def resume(self, attempt: Attempt) -> WorkItem:
        """Return the work item that remains of an attempt that got the resources it waited for."""
        return self._run(attempt)

    def thread_ended(self, attempt: Attempt, value: object, error: BaseException | None) -> None:
        """Settle a run that ended in a thread with this value or error."""
        delivery, execution = attempt.delivery, attempt.execution
        assert execution is not None
        processor = self._processor
        outcome = (
            processor.outcome_of_value(attempt, value)
            if error is None
            else processor.outcome_of_error(attempt, execution, error)
        )
        outcome = _unless_cancelled(attempt, outcome)
        try:
            rest = None if self._is_concluded(attempt, outcome) else self._settle(attempt, outcome)
        except BaseException as failure:  # noqa: BLE001 - whatever fails here, the job has an end
            rest = self._settle_at_last(attempt, outcome, failure)
        if rest is None:
            self._slots.end(delivery, None)
            self._slots.call()
            return
        variables = self._variables.copy()
        variables.run(current_context.set, execution.context)
        self._slots.carry_out(delivery, rest, variables)

    async def settle_cancelled(self, attempt: Attempt) -> bool:
        """Settle an attempt that was cancelled before it started."""
        outcome: Outcome = Cancelled(attempt.cancelled or "")
        if self._guards.concern(attempt):
            outcome = await self._guards.acquire(attempt) or outcome
        self._slots.settling.add(attempt.delivery)
        self._stats.end(attempt, outcome, now=self._slots.monotonic())
        await self._settle_in_order(attempt, outcome)
        return True

    async def settle_recalled(self, attempt: Attempt) -> bool:
        """Return an attempt that has not started."""
        outcome = Interrupted(attempt.preempted or RECALLED)
        self._slots.settling.add(attempt.delivery)
        self._stats.end(attempt, outcome, now=self._slots.monotonic())
        return await self._settler.settle(attempt, outcome)

    async def _process(self, delivery: Delivery, read: Attempt | Parked) -> bool:
        if is_shard(delivery.queue):
            in_turn = self._shards.take(delivery, read)
            if in_turn is None:
                return True
            read = in_turn
        if isinstance(read, Parked):
            self._stats.park(delivery, read)
            await self._settler.park(delivery, read)
            return True
        # Standby messages have a due time; without one the headers need not be read.
        if read.envelope.eta is not None and self._long_runs is not None and not await self._long_runs.admits(read):
            return True
        needs = read.task.plan.needs
        if needs is not None and self._cancelled(read.job_id) is None and not self._slots.acquire(read, needs):
            return True
        return await self._run(read)

    async def _run(self, attempt: Attempt) -> bool:
        try:
            attempt.cancelled = self._cancelled(attempt.job_id)
            if attempt.cancelled is None and self._is_recalled(attempt.envelope):
                return await self.settle_recalled(attempt)
            outcome: Outcome | None = None
            if attempt.envelope.has_references and attempt.cancelled is None:
                outcome = await self._arguments.load(attempt)
            # The guards that admitted it must also learn that it is dead; a snoozed attempt has not reached them yet.
            if not isinstance(outcome, Snoozed) and self._guards.concern(attempt):
                outcome = await self._guards.acquire(attempt) or outcome
                # It may have been cancelled while it waited.
                attempt.cancelled = self._cancelled(attempt.job_id)
            if attempt.cancelled is not None:
                outcome = Cancelled(attempt.cancelled)
            if outcome is None:
                self._stats.start(attempt, now=self._slots.monotonic())
                # A job that came back is reported as started when its run begins, and not while it waits to be alone.
                if (invitation := attempt.envelope.store) is not None and invitation.crashes is None:
                    self._settler.reports.run_begins(attempt, invitation)
                outcome = await self._outcome(attempt, self._runner_of(attempt)(attempt))
        except BaseException as error:
            if is_interruption(error):
                raise
            # Checks before a run call code of the app, too: for its keys, and for its arguments' types.
            outcome = self._processor.outcome_of_failure(attempt, error)
        finally:
            if attempt.grant is not None:
                self._slots.resources.give_back(attempt.grant)
        return await self._conclude(attempt, outcome)

    async def _go_on(self, waiting: WaitingRun) -> bool:
        attempt = waiting.attempt
        assert attempt.execution is not None
        if (invitation := attempt.envelope.store) is not None:
            self._settler.reports.run_begins(attempt, invitation)
        outcome = await self._processor.go_on(attempt, attempt.execution, waiting.rest)
        return await self._conclude(attempt, _unless_cancelled(attempt, outcome))

    async def _conclude(self, attempt: Attempt, outcome: Outcome) -> bool:
        try:
            if self._is_concluded(attempt, outcome):
                return attempt.is_clean
        except BaseException as error:  # noqa: BLE001 - whatever fails here, the job has an end
            return await self._settle_at_last(attempt, outcome, error)
        return await self._settle(attempt, outcome)

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        try:
            return await self._settle_with_journal(attempt, outcome)
        except BaseException as error:
            if is_interruption(error) or isinstance(outcome, Interrupted):
                raise
            return await self._settle_at_last(attempt, outcome, error)

    async def _settle_at_last(self, attempt: Attempt, outcome: Outcome, error: BaseException) -> bool:
        self._slots.settling.add(attempt.delivery)
        await self._settler.settle_at_last(attempt, outcome, error, settle=self._settle_in_order)
        if attempt.execution is not None:
            attempt.execution.context.is_settled = True
        return attempt.is_clean

    async def _settle_with_journal(self, attempt: Attempt, outcome: Outcome) -> bool:
        journal = None if attempt.execution is None else attempt.execution.context.journal
        if journal is not None:
            await self._journal.finish(journal, outcome)
        try:
            is_done = await self._settle_in_order(attempt, outcome)
        except StateUnavailable as error:
            # Its result is lost: it ends as a run that has met the outage itself.
            outcome = self._processor.outcome_of_failure(attempt, error)
            self._stats.end_anew(attempt, outcome)
            _log.error(
                "job %s of task %s: its result could not be stored, so it ends as %s: %s",
                attempt.job_id,
                attempt.envelope.task,
                OUTCOME_NAMES[type(outcome)],
                error,
            )
            is_done = await self._settle_in_order(attempt, outcome)
        if journal is not None and is_done:
            await self._journal.end(journal, outcome)
        if attempt.execution is not None:
            attempt.execution.context.is_settled = True
        if is_done and self._quarantine is not None and isinstance(outcome, Dead) and outcome.reason == "worker_lost":
            self._quarantine.forget(attempt)
        return attempt.is_clean

    def _runner_of(self, attempt: Attempt) -> Callable[[Attempt], Awaitable[Outcome]]:
        plan, quarantine = attempt.plan, self._quarantine
        if (
            quarantine is not None
            and (attempt.delivery.redelivered or plan.executor == "process" or _has_crashed(attempt))
            and plan.ack == "late"
        ):
            return quarantine.run
        return self._processor.run

    async def _outcome(self, attempt: Attempt, run: Awaitable[Outcome]) -> Outcome:
        try:
            outcome = await run
        except asyncio.CancelledError:
            # Cancelled before its first step, so no layer below could interpret it.
            if attempt.cancelled is not None:
                outcome = Cancelled(attempt.cancelled)
            elif attempt.preempted is not None:
                outcome = Interrupted(attempt.preempted)
            else:
                self._stats.forget(attempt)
                raise
        except BaseException:
            self._stats.forget(attempt)
            raise
        return _unless_cancelled(attempt, outcome)

    def _is_concluded(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Conclude a run; return whether it is also settled, because no wait was needed."""
        self._stats.end(attempt, outcome, now=self._slots.monotonic())
        execution = attempt.execution
        if (execution is None or execution.context.journal is None) and self._settler.settle_at_once(
            attempt, outcome
        ):
            if execution is not None:
                execution.context.is_settled = True
            return True
        self._slots.settling.add(attempt.delivery)
        return False

    async def _settle_in_order(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Settle the run, or keep it at the front of its shard; return whether its message left the broker."""
        if not is_shard(attempt.delivery.queue):
            return await self._settler.settle(attempt, outcome)
        if self._shards.keep(attempt, outcome):
            if not await self._settler.release_permits(attempt, outcome):
                return False
            if isinstance(outcome, Retried):
                self._settler.note_retry(attempt, to_ms(outcome.delay), outcome.error)
            return False
        is_done = await self._settler.settle(attempt, outcome)
        if is_done:
            self._shards.forget(attempt.delivery)
        return is_done


def _has_crashed(attempt: Attempt) -> bool:
    invitation = attempt.envelope.store
    return invitation is not None and bool(invitation.crashes)


def _unless_cancelled(attempt: Attempt, outcome: Outcome) -> Outcome:
    is_given_back = isinstance(outcome, Interrupted) and outcome.delay is None
    if attempt.cancelled is not None and not is_given_back:
        # A cancelled job ends as cancelled, whatever its run returned.
        return Cancelled(attempt.cancelled)
    return outcome
