"""Processor: turns a delivery into its outcome. Never raises."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from datetime import timedelta
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.errors import InvalidArguments, MalformedMessage, RunSuperseded
from taskmq.executors import CoroutineExecutor
from taskmq.middleware.chain import Proceed, execute_chain
from taskmq.model import headers as header
from taskmq.model.envelope import JSON, Envelope, Invitation, decode_envelope, new_job_id
from taskmq.model.outcome import (
    EXPIRED,
    STOPPED,
    Cancelled,
    Dead,
    ErrorRecord,
    Interrupted,
    Outcome,
    Parked,
    Snoozed,
    Succeeded,
)
from taskmq.model.resources import Grant
from taskmq.model.topology import is_jobs_queue, jobs_queue, logical_queue
from taskmq.options.task_options import ExecutorKind
from taskmq.run.context import Context, current_context
from taskmq.run.detached_writer import DETACHED
from taskmq.run.execution import Execution, Executor, check_is_done
from taskmq.run.forks import PROCESS, leave_fork
from taskmq.run.journal import JournalWriter
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import WorkerConfig
from taskmq.worker.settlement.error_text import substitute
from taskmq.worker.settlement.outages import MOST_OUTAGES, count_outages
from taskmq.worker.settlement.outcome_of_error import outcome_of_error

# A message that is early by at most this (ms) is kept in hand: the broker's shortest delay is longer.
_EARLY: Final = 125


class Processor:
    """Reads deliveries and runs tasks.

    Decodes deliveries and runs tasks.
    """

    def __init__(
        self,
        app: TaskMQ,
        executors: Mapping[ExecutorKind, Executor],
        config: WorkerConfig,
        *,
        journal_writer: JournalWriter = DETACHED,
        tell_start: Callable[[Attempt, Invitation], Awaitable[bool]] | None = None,
        record_of: Callable[[BaseException], ErrorRecord] | None = None,
    ) -> None:
        self._tasks = app.tasks.by_name
        self._clock = app.sessions.clock
        self._config = config
        self._chains: dict[ExecutorKind, Proceed] = {
            kind: execute_chain(app.producer.middleware, executor.run) for kind, executor in executors.items()
        }
        self._coroutines = CoroutineExecutor()
        self._journal_writer = journal_writer
        self._start_teller = tell_start
        self._record_of = record_of
        self.is_interrupting = False

    def read(self, delivery: Delivery) -> Attempt | Parked:
        """Decode a delivery into an attempt, or return why that is impossible."""
        try:
            envelope = decode_envelope(delivery.body, delivery.content_type)
        except MalformedMessage as error:
            return Parked(str(error))
        return self.identify(delivery, envelope)

    def identify(self, delivery: Delivery, envelope: Envelope) -> Attempt | Parked:
        """Return the attempt of a decoded delivery, or why there is none.

        Invitations are valid only in a queue to which schedulers alone publish: the right to send jobs does not
        include the right to invite.
        """
        if envelope.store is not None and not is_jobs_queue(delivery.queue):
            return Parked(f"an invitation of a stored job outside {jobs_queue(delivery.queue)!r}")
        task = self._tasks.get(envelope.task)
        if task is None:
            return self._unknown(delivery, envelope)
        job_id = envelope.id or delivery.message_id or new_job_id(self._clock.now_ms(), os.urandom(10))
        fence = None if envelope.store is None else envelope.store.fence
        return Attempt(delivery, envelope, task, job_id, fence=(envelope.key or "", fence) if fence else None)

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the attempt; return its outcome. With early acknowledgement, the broker confirms it before the run."""
        envelope = attempt.envelope
        if (envelope.eta is not None or envelope.expires is not None) and (
            early := await self._not_now(envelope)
        ) is not None:
            return early
        try:
            execution = self._execution(attempt)
        except InvalidArguments as error:
            return Dead("invalid_arguments", error)
        except BaseException as error:  # noqa: BLE001 - the types of a task run code of their own when they are decoded
            return self.outcome_of_failure(attempt, error)
        attempt.execution = execution
        invitation = envelope.store
        if attempt.plan.ack == "early":
            # The store first: it never dispatches the job again, whatever happens here.
            is_told = invitation is None or await self._tell_start(attempt, invitation)
            if not is_told or not await attempt.delivery.ack_confirmed():
                # Another worker may have it: at most once means not here.
                return Interrupted()
        elif (
            invitation is not None
            and invitation.crashes is not None
            and not await self._tell_start(attempt, invitation)
        ):
            # It came back before: if this worker dies, the scheduler has to know that the run had begun.
            return Interrupted()
        current_context.set(execution.context)
        before = copy_context()
        outcome = await self._finish(attempt, execution, self._chains[attempt.plan.executor](execution))
        attempt.is_clean = is_same(before)
        return outcome

    def go_on(self, attempt: Attempt, execution: Execution, rest: Awaitable[object]) -> Awaitable[Outcome]:
        """Return the outcome of an attempt whose coroutine made its first step in this task."""
        return self._finish(attempt, execution, self._coroutines.finish(execution, rest))

    def outcome_of_failure(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that raised `error`. Never raises; a fork of the run ends here."""
        if PROCESS.is_fork:
            leave_fork(error)
        try:
            return self._outcome_of_failure(attempt, error)
        except BaseException:  # noqa: BLE001 - the error's class, and those of the retry policy, may do anything
            readable = substitute(error, attempt.envelope.task)
        try:
            return self._outcome_of_failure(attempt, readable)
        except BaseException:  # noqa: BLE001 - as above
            return Dead("error", readable)

    def _outcome_of_failure(self, attempt: Attempt, error: BaseException) -> Outcome:
        if isinstance(error, RunSuperseded):
            if attempt.envelope.store is not None:
                journal = None if attempt.execution is None else attempt.execution.context.journal
                if journal is None or journal.run is not None:
                    # The run that took over reports the job; a report of this one would end that.
                    attempt.delivery.ack()
                # A run that may not begin lacks newer values: its message goes back, and the scheduler decides.
                return Interrupted()
            if is_revoked(attempt.delivery):
                # The run that took over has the message now; a copy of it would be one too many.
                return Interrupted()
        plan = attempt.plan
        outcome = outcome_of_error(
            error,
            policy=plan.retry,
            attempt=attempt.envelope.attempt - attempt.envelope.earlier,
            fraction=random.random,
            # A message that is acknowledged before its run must not run twice.
            outages=MOST_OUTAGES if plan.ack == "early" else count_outages(attempt),
        )
        if isinstance(outcome, Snoozed) and attempt.preempted is not None:
            return Interrupted(attempt.preempted)
        return outcome

    def outcome_of_value(self, attempt: Attempt, value: object) -> Outcome:
        """Return the outcome of an attempt whose function returned `value`."""
        error = check_is_done(value, attempt.envelope.task)
        return Succeeded(value) if error is None else self.outcome_of_failure(attempt, error)

    def outcome_of_error(self, attempt: Attempt, execution: Execution, error: BaseException) -> Outcome:
        """Return the outcome of an attempt whose run raised `error`, or was given up. Never raises."""
        if issubclass(type(error), asyncio.CancelledError):
            execution.context.mark_cancelled()
            if attempt.cancelled is not None:
                return Cancelled(attempt.cancelled)
            if attempt.preempted is not None:
                return Interrupted(attempt.preempted)
            if self.is_interrupting:
                # The scheduler must not dispatch again what was acknowledged before its run.
                return Interrupted("" if attempt.plan.ack == "early" else STOPPED)
            # Not by the worker: the task cancelled itself, which is its failure.
        return self.outcome_of_failure(attempt, error)

    async def _finish(self, attempt: Attempt, execution: Execution, run: Awaitable[object]) -> Outcome:
        try:
            value = await run
        except BaseException as error:  # noqa: BLE001 - one of the three borders: whatever a task raises is an outcome
            return self.outcome_of_error(attempt, execution, error)
        if PROCESS.is_fork:
            leave_fork(None)
        return self.outcome_of_value(attempt, value)

    def _execution(self, attempt: Attempt) -> Execution:
        envelope, task, plan = attempt.envelope, attempt.task, attempt.plan
        content_type = attempt.delivery.content_type or JSON
        arguments = task.signature.decode(envelope.args, envelope.kwargs, content_type)
        started = self._clock.now_ms()
        given = attempt.grant
        # The worker's own counters are not visible to the task.
        grant = None if given is None or plan.resources is None else Grant(plan.resources, given.devices)
        context = Context(
            envelope,
            job_id=attempt.job_id,
            max_attempts=envelope.earlier + (plan.retry.max_attempts if plan.retry else 1),
            queue=logical_queue(attempt.delivery.queue),
            redelivered=attempt.delivery.redelivered,
            _deadline=None if plan.timeout is None else started / 1000 + plan.timeout,
            _writer=self._journal_writer,
            started=started,
            _grant=grant,
            fence=attempt.fence,
        )
        args, kwargs = task.signature.with_context(arguments, context)
        attempt.started = started
        return Execution(
            context,
            task.call,
            args,
            kwargs,
            envelope,
            content_type,
            plan.timeout,
            grant,
            plan.soft_timeout,
            record_of=self._record_of,
        )

    async def _tell_start(self, attempt: Attempt, invitation: Invitation) -> bool:
        return self._start_teller is None or await self._start_teller(attempt, invitation)

    async def _not_now(self, envelope: Envelope) -> Outcome | None:
        if envelope.eta is not None and (left := envelope.eta - self._clock.now_ms()) > 0:
            if left > _EARLY:
                return Snoozed(timedelta(milliseconds=left))
            await self._clock.sleep_until(envelope.eta)
        if envelope.expires is not None and self._clock.now_ms() >= envelope.expires:
            return Cancelled(EXPIRED)
        return None

    def _unknown(self, delivery: Delivery, envelope: Envelope) -> Parked:
        seen = delivery.headers.get(header.UNKNOWN, 0)
        # A client may set this header: below 0 it would requeue the message forever.
        count = max(seen, 0) if isinstance(seen, int) else 0
        reason = f"task {envelope.task!r} is not registered"
        if count >= self._config.unknown_attempts:
            return Parked(f"{reason} at any worker that has seen the message in {count + 1} tries")
        hint = "does the app import the module that defines it?"
        return Parked(f"{reason} here: {hint}", delay=timedelta(seconds=self._config.unknown_delay * 2**count))


def is_same(before: Variables) -> bool:
    """Return whether the context variables are unchanged; values that a task set may raise when compared."""
    try:
        return copy_context() == before
    except BaseException:  # noqa: BLE001 - the task's own class
        return False
