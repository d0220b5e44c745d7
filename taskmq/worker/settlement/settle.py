"""Settling of outcomes: the one place that settles a delivery.

    Outcome       first                                                    then
    Succeeded     store the result if it is kept                           ack
    Answered      the same
    Retried       publish the next attempt's copy, wait for its confirm    ack
    Snoozed       publish the copy, wait for its confirm                   ack
    Dead          store the error if kept, publish to the dead-letter      ack
                  queue, wait for its confirm
    Cancelled     store it if results are kept                             ack
    Interrupted   nothing; by an outage, as Snoozed                        requeue
    Parked        publish to the parking queue, or back to its own with    ack
                  a delay; wait for its confirm

A result that cannot be stored in time ends the wait (`SettlingPatience`): a success is then an outage, which the
caller of `settle` gets as `StateUnavailable`; a dead letter says why without a result, and a cancelled job has none.

Before all that an attempt leaves what its guards have given it (`permits`). What has to come first is tried again
while the broker or the state does not answer: a slot that waits is better than a task that runs twice. When a copy
(`MessageCopies`) cannot be published after some tries, or the worker is stopping, the delivery goes back instead.

For a stored job (`Envelope.store`) none of that applies: its outcome is reported, and then acknowledged
(`stored_jobs`).

A run whose message was redelivered elsewhere meanwhile (`Revocable`) may still have succeeded: its result is kept if
it is the first. Any other outcome has no effect: the worker that has the message now decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, assert_never

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery, HeaderValue, Outgoing
from taskmq.contracts.broker_abilities import Revocable
from taskmq.contracts.stores import ErrorRecord, ResultRecord, ResultStore
from taskmq.errors import (
    EncodeError,
    MalformedMessage,
    SendError,
    StateUnavailable,
    TooLarge,
)
from taskmq.model import headers as header
from taskmq.model.envelope import Envelope, Invitation, decode_envelope
from taskmq.model.history.redaction import Redactor
from taskmq.model.outcome import (
    OUTCOME_NAMES,
    AlreadyDone,
    Cancelled,
    Dead,
    Interrupted,
    Outcome,
    Parked,
    Retried,
    Snoozed,
    Succeeded,
)
from taskmq.model.retry import coarse_delay
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, is_jobs_queue, is_shard, logical_queue
from taskmq.model.units import to_ms
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import LogErrors, WorkerConfig
from taskmq.worker.run_logs import RunLines
from taskmq.worker.settlement.copies import MessageCopies
from taskmq.worker.settlement.error_text import ErrorTexts
from taskmq.worker.settlement.last_resort import LastResort
from taskmq.worker.settlement.patience import SettlingPatience
from taskmq.worker.settlement.permits import release_permits
from taskmq.worker.settlement.records import EndRecords, FailureLog
from taskmq.worker.settlement.reports import ReportSender
from taskmq.worker.settlement.stored_jobs import StoredJobSettler

_log = logging.getLogger("taskmq.worker")

_PUBLISH_TRIES: Final = 3
_TURNS: Final = 4
# Outcomes without a record of the job's end.
_GOES_ON: Final = (Retried, Snoozed, Interrupted)


class Settler:
    """Settles deliveries of one worker.

    Args:
        worker: the worker's name, for results and dead letters.
        result_limit: bytes of a result, encoded.
        result_wait: seconds for which a result that cannot be stored is waited for.
        log_errors: what the log says of a failed attempt.
        redactor: what is replaced in texts of errors; None: what is recognised as secret.
        logs: what runs of jobs of the store have logged; None: nothing is taken.

    Attributes:
        stored_jobs: settles deliveries of stored jobs.
    """

    def __init__(
        self,
        app: TaskMQ,
        *,
        worker: str,
        result_limit: int = WorkerConfig().result_limit,
        result_wait: float = WorkerConfig().result_wait,
        log_errors: LogErrors = "traceback",
        redactor: Redactor | None = None,
        logs: RunLines | None = None,
    ) -> None:
        self._app = app
        self._clock = app.sessions.clock
        self._worker = worker
        self._patience = SettlingPatience(result_wait=result_wait)
        self._records = EndRecords(worker=worker, clock=self._clock, result_limit=result_limit)
        self._texts = ErrorTexts(redactor or Redactor())
        self._failures = FailureLog(log_errors, self._texts)
        self._last_resort = LastResort(self._patience, self._texts)
        self._copies = MessageCopies(app, self._texts, worker=worker)
        session = app.sessions.current()
        self._session = session
        self.reports = ReportSender(
            session.broker,
            worker=worker,
            timeout=session.send_timeout,
            stopping=self._patience.is_over,
            logs=logs,
        )
        self.stored_jobs = StoredJobSettler(
            self.reports,
            worker=worker,
            app_version=app.sessions.app_version,
            clock=self._clock,
            records=self._records,
            failures=self._failures,
            texts=self._texts,
            patience=self._patience,
            large=session.large_values,
        )
        self._results: ResultStore | None = session.stores.results

    @property
    def keeps_results(self) -> bool:
        """Whether there is a state that keeps results."""
        return self._results is not None

    def record_of(self, error: BaseException) -> ErrorRecord:
        """Return the redacted record of an error for results and reports."""
        return self._texts.record(error)

    @property
    def unsettled(self) -> int:
        """Number of jobs that have run and keep their slots, because their outcomes cannot be settled."""
        return len(self._last_resort.waiting) + self._patience.waiting

    async def settle_at_last(
        self,
        attempt: Attempt,
        outcome: Outcome,
        error: BaseException,
        *,
        settle: Callable[[Attempt, Outcome], Awaitable[object]],
    ) -> None:
        """End a job whose outcome could not be settled because of `error`, as failed if need be; see `LastResort`."""
        await self._last_resort.end(attempt, outcome, error, settle=settle)

    def return_redelivered(self, delivery: Delivery) -> bool:
        """Return an invitation that came a second time to its scheduler; return False if it is no invitation."""
        return self._return_unrun(delivery, is_redelivered=True)

    def return_part(self, part: Delivery) -> bool:
        """Return one invitation of a parcel to its scheduler; return False if it cannot be reported any more."""
        return not self._patience.is_over.is_set() and self._return_unrun(part, is_redelivered=False)

    def _return_unrun(self, delivery: Delivery, *, is_redelivered: bool) -> bool:
        if (envelope := _read_invitation(delivery)) is None or (invitation := envelope.store) is None:
            return False
        self.stored_jobs.return_unrun(envelope, invitation, delivery, is_redelivered=is_redelivered)
        return True

    def stop_trying(self) -> None:
        """Return deliveries from now on, instead of waiting for a broker or state that does not answer."""
        self._patience.is_over.set()

    def settle_at_once(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Settle a success that needs no wait; return whether it was one.

        A success of a stored job is reported while the next job runs, and acknowledged once that is confirmed.
        """
        if type(outcome) is not Succeeded or attempt.permits:
            return False
        if (invitation := attempt.envelope.store) is not None:
            return self.stored_jobs.settle_at_once(attempt, invitation, outcome)
        if (self._results is not None and attempt.task.plan.result is not False) or is_shard(attempt.delivery.queue):
            return False
        attempt.delivery.ack()
        return True

    async def settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Make the outcome durable, then settle the delivery; whether it was taken off the broker.

        Raises:
            StateUnavailable: the result of a success could not be stored in time. Nothing is settled; nothing is held
                any more, so that the job may be settled with another outcome.
        """
        delivery = attempt.delivery
        if attempt.envelope.store is None and _has_effect(outcome) and await _is_void(delivery):
            # The worker that gets the message next decides what follows: a copy from here would be one too many.
            _log.warning(
                "job %s of task %s: outcome %s ignored, the message was redelivered to another worker",
                attempt.job_id,
                attempt.envelope.task,
                OUTCOME_NAMES[type(outcome)],
            )
            await self.release_permits(attempt, Interrupted())
            return False
        if isinstance(outcome, _GOES_ON) and not await self.release_permits(attempt, outcome):
            return False
        # A stopping worker returns running jobs without a report.
        is_silent = isinstance(outcome, Interrupted) and not outcome.reason and outcome.delay is None
        if attempt.envelope.store is not None and not is_silent:
            return await self.stored_jobs.settle(attempt, attempt.envelope.store, outcome)
        return await self._settle(attempt, outcome)

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        delivery = attempt.delivery
        match outcome:
            case Succeeded(value):
                if attempt.permits or (self._results is not None and attempt.task.plan.result is not False):
                    return await self._settle_success(attempt, outcome, value)
                delivery.ack()
                return True
            case AlreadyDone(content_type, value):
                record = self._records.record(attempt, JobState.SUCCEEDED, content_type=content_type, value=value)
                return await self._settle_end(attempt, outcome, record)
            case Retried(delay, error):
                wait = coarse_delay(to_ms(delay))
                self._failures.note_retry(attempt, wait, error)
                return await self._run_later(attempt, self._copies.next_attempt(attempt, wait, error))
            case Snoozed(delay):
                return await self._run_later(attempt, self._copies.same_attempt(attempt, to_ms(delay)))
            case Interrupted(delay=timedelta() as delay, error=BaseException() as error):
                wait = coarse_delay(to_ms(delay))
                self._failures.note_outage(attempt, wait, error)
                return await self._run_later(attempt, self._copies.same_attempt(attempt, wait, new_outages=1))
            case Dead():
                return await self._dead(attempt, outcome)
            case Cancelled(reason):
                record = self._records.record(
                    attempt,
                    JobState.CANCELLED,
                    error=ErrorRecord(type_name="JobCancelled", message=reason, traceback=""),
                )
                return await self._settle_end(attempt, outcome, record)
            case Interrupted():
                delivery.requeue()
                return False
            case Parked():
                return await self.park(delivery, outcome)
            case _:
                assert_never(outcome)

    async def tell_start(self, attempt: Attempt, invitation: Invitation) -> bool:
        """Report the start of a stored job; return False if the worker stops before that is confirmed."""
        return await self.reports.send(invitation, self.reports.about(attempt, invitation, "started"))

    async def release_permits(self, attempt: Attempt, outcome: Outcome, record: ResultRecord | None = None) -> bool:
        """Release the attempt's permits; False: the delivery was returned instead."""
        return await release_permits(attempt, outcome, record, patience=self._patience)

    def note_retry(self, attempt: Attempt, wait: int, error: BaseException) -> None:
        """Log that an attempt failed and another follows `wait` milliseconds later."""
        self._failures.note_retry(attempt, wait, error)

    async def _run_later(self, attempt: Attempt, copy: Outgoing) -> bool:
        limit = self._session.broker.max_message_bytes
        if len(copy.body) > limit:
            # The message just fitted; with its attempt and time it no longer does.
            error = TooLarge(len(copy.body), limit, f"the next attempt of {copy.job_id}")
            return await self._dead(attempt, Dead("error", error))
        return await self._publish_and_ack(attempt.delivery, copy)

    async def park(self, delivery: Delivery, parked: Parked) -> bool:
        """Park a message that is not an attempt of a known task; return whether that is done."""
        if (envelope := _read_invitation(delivery)) is not None and (invitation := envelope.store) is not None:
            return await self.stored_jobs.refuse(envelope, invitation, delivery, parked)
        if parked.delay is not None:
            message = self._copies.unknown_task(delivery, to_ms(parked.delay))
            _log.info("message %s requeued: %s", delivery.message_id, parked.reason)
        else:
            message = self._copies.parked_message(delivery, parked.reason)
            _log.error("message %s parked in %s: %s", delivery.message_id, PARKING, parked.reason)
        return await self._publish_and_ack(delivery, message)

    async def _settle_end(self, attempt: Attempt, outcome: Outcome, record: ResultRecord) -> bool:
        # Most attempts have no permits, and avoid the coroutine.
        if attempt.permits and not await self.release_permits(attempt, outcome, record):
            return False
        if not await self._store_record(attempt, record):
            return False
        attempt.delivery.ack()
        return True

    async def _settle_success(self, attempt: Attempt, outcome: Outcome, value: object) -> bool:
        content_type, encoded, failure = self._records.encode_result(
            attempt.task, value, attempt.delivery.content_type
        )
        if failure is not None:
            # The work is done; running it again would not make the value any more storable.
            return await self._dead(attempt, failure)
        record = self._records.record(attempt, JobState.SUCCEEDED, content_type=content_type, value=encoded)
        return await self._settle_end(attempt, outcome, record)

    async def _dead(self, attempt: Attempt, outcome: Dead) -> bool:
        details = self._texts.record(outcome.error)
        self._failures.note_death(attempt, outcome)
        record = self._records.record(attempt, JobState.FAILED, error=details)
        if not await self.release_permits(attempt, outcome, record) or not await self._store_record(attempt, record):
            return False
        letter = self._copies.dead_letter(attempt, outcome, details)
        return await self._publish_and_ack(attempt.delivery, letter)

    async def _store_record(self, attempt: Attempt, record: ResultRecord) -> bool:
        """Return True once the record is durable or none is kept; False if the delivery was returned instead."""
        if self._results is None or attempt.task.plan.result is False:
            return True
        put = partial(self._results.put, record, ttl=attempt.task.plan.result_ttl or self._app.sessions.result_ttl)
        try:
            await self._patience.until_kept(put, job_id=attempt.job_id)
        except StateUnavailable as error:
            if self._patience.is_over.is_set():
                attempt.delivery.requeue()
                return False
            if record.state is JobState.SUCCEEDED:
                raise
            # To run it once more would be wrong: it has no attempts left, or is not wanted.
            name = attempt.task.name
            _log.error("job %s of task %s has no result: %s: %s", attempt.job_id, name, record.state, error)
        return True

    async def _publish_and_ack(self, delivery: Delivery, message: Outgoing) -> bool:
        backoff = self._patience.backoff()
        for attempt in range(1, _PUBLISH_TRIES + 1):
            try:
                # Publish before ack: a crash here repeats the attempt, the other order would lose it.
                await self._session.declare_and_publish(
                    self._app.producer.queue(logical_queue(delivery.queue)), message
                )
            except SendError as error:
                _log.warning("job %s: publishing a copy to %s failed: %s", message.job_id, message.queue, error)
                if attempt == _PUBLISH_TRIES or not await self._patience.pause(backoff.next()):
                    break
                if isinstance(error, EncodeError):
                    # The headers of the sender and of taskmq together may exceed the broker's limit.
                    message = replace(message, headers=_own(message.headers))
                elif isinstance(error, TooLarge) and message.due is None:
                    # The dead letter's own additions exceed the limit: the original body fits.
                    message = replace(message, body=delivery.body)
            else:
                delivery.ack()
                return True
        delivery.requeue()
        return False


def _has_effect(outcome: Outcome) -> bool:
    """Return whether an outcome publishes something, or ends the job without success."""
    if isinstance(outcome, Interrupted):
        return outcome.delay is not None
    return isinstance(outcome, Retried | Snoozed | Dead | Cancelled)


def _read_invitation(delivery: Delivery) -> Envelope | None:
    """Decode an invitation without an attempt; None if the message is no invitation, or cannot be read."""
    if not is_jobs_queue(delivery.queue):
        return None
    try:
        return decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return None


async def _is_void(delivery: Delivery) -> bool:
    if not isinstance(delivery, Revocable):
        return False
    for _ in range(_TURNS):
        if delivery.revoked:
            return True
        # After the loop was blocked, the end of its connection is not read yet.
        await asyncio.sleep(0)
    return delivery.revoked


def _own(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    return {name: value for name, value in headers.items() if name.startswith(header.OWN)}
