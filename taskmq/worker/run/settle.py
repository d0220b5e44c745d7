"""From an outcome to its effects: the one place that settles a delivery.

    Outcome       first                                                    then
    Succeeded     store the result if it is kept                           ack
    Answered      the same
    Retried       publish the next attempt's copy, wait for its confirm    ack
    Snoozed       publish the copy, wait for its confirm                   ack
    Dead          store the error if kept, publish to the dead-letter      ack
                  queue, wait for its confirm
    Cancelled     store it if results are kept                             ack
    Interrupted   nothing                                                  requeue
    Parked        publish to the parking queue, or back to its own with    ack
                  a delay; wait for its confirm

Before all that an attempt leaves what its guards have given it (`guards`). What has to come first is tried again
while the broker or the state does not answer: a slot that waits is better than a task that runs twice. When a copy
cannot be published after some tries, or the worker is stopping, the delivery goes back instead. Copies never carry
what the broker has written on the original.

Of a job of the store (`Envelope.store`) nothing of that is stored or published: its outcome is reported, and then
acknowledged (`reports`).

A run whose message was taken away meanwhile (`Revocable`) may still have been successful: its result is kept, if
it is the first. Whatever else it came to has no effect: whoever has the message now decides what follows.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, assert_never

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.large_values import REFERENCE, reference_to
from taskmq.contracts.broker import Delivery, HeaderValue, Outgoing, Revocable
from taskmq.contracts.republish import copy_message
from taskmq.contracts.stores import ErrorRecord, ResultRecord, ResultStore
from taskmq.durable.service import pause
from taskmq.errors import (
    EncodeError,
    MalformedMessage,
    ResultTooLarge,
    SendError,
    StateUnavailable,
    TooLarge,
    WorkerLost,
)
from taskmq.model import headers as header
from taskmq.model.backoff import Backoff
from taskmq.model.codec import encode_value
from taskmq.model.envelope import JSON, LAST_INSTANT, Envelope, Invitation, amend, decode_envelope
from taskmq.model.jobs.reports import Report, ReportKind
from taskmq.model.outcome import (
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
from taskmq.model.topology import PARKING, dead_letter_queue, is_shard, logical_queue
from taskmq.model.units import to_ms
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import LogErrors, WorkerConfig
from taskmq.worker.run.error_text import (
    ERROR_LIMIT,
    error_record,
    has_form,
    storable,
    summary,
    type_name,
)
from taskmq.worker.run.processor import EXPIRED
from taskmq.worker.run.reports import ReportSender

__all__ = ["Settler"]

_log = logging.getLogger("taskmq.worker")

_PUBLISH_TRIES: Final = 3
_PAUSE: Final = 0.2
_TURNS: Final = 4
_LONGEST_PAUSE: Final = 5.0
# Outcomes after which there is no record of the job's end.
_GOES_ON: Final = (Retried, Snoozed, Interrupted)
# Seconds: a day longer than stores keep a job that has ended.
_STORED_RESULT: Final = 31 * 86_400.0
# A job that this worker can never run another one may.
_REFUSED_MS: Final = 60_000


class Settler:
    """Settles deliveries of one worker.

    Args:
        worker: the worker's name, for results and dead letters.
        result_limit: bytes of a result, encoded.
        log_errors: what the log says of a failed attempt.
    """

    def __init__(
        self,
        app: TaskMQ,
        *,
        worker: str,
        result_limit: int = WorkerConfig().result_limit,
        log_errors: LogErrors = "traceback",
    ) -> None:
        self._app = app
        self._clock = app.sessions.clock
        self._worker = worker
        self._result_limit = result_limit
        self._log_errors = log_errors
        self._is_stopping = asyncio.Event()
        session = app.sessions.current()
        self._session = session
        self.reports = ReportSender(
            session.broker, worker=worker, timeout=session.send_timeout, stopping=self._is_stopping
        )
        self._results: ResultStore | None = session.stores.results
        self._large = session.large_values

    @property
    def keeps_results(self) -> bool:
        """Whether there is a state to keep results in."""
        return self._results is not None

    def stop_trying(self) -> None:
        """From now on give deliveries back instead of waiting for a broker or state that does not answer."""
        self._is_stopping.set()

    def settle_at_once(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Settle a success that nothing has to be waited for; whether it was one.

        A success of a job of the store is told beside what runs next, and acknowledged once that is confirmed.
        """
        if type(outcome) is not Succeeded or attempt.permits:
            return False
        if (invitation := attempt.envelope.store) is not None:
            self.reports.run_ends(attempt)
            report, _ = self._said(attempt, invitation, outcome)
            if self._is_large(report):
                return False
            self.reports.tell(invitation, report, attempt.delivery)
            return True
        if (self._results is not None and attempt.task.plan.result is not False) or is_shard(attempt.delivery.queue):
            return False
        attempt.delivery.ack()
        return True

    async def settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Make the outcome durable, then settle the delivery; whether it was taken off the broker."""
        delivery = attempt.delivery
        if isinstance(outcome, Retried | Snoozed | Dead | Cancelled) and await _is_void(delivery):
            # Whoever gets the message next decides what follows: a copy from here would be one too many.
            _log.warning(
                "job %s of task %s: %s too late, the message was given to another worker",
                attempt.job_id,
                attempt.envelope.task,
                type(outcome).__name__.lower(),
            )
            await self.release_permits(attempt, Interrupted())
            return False
        if isinstance(outcome, _GOES_ON) and not await self.release_permits(attempt, outcome):
            return False
        if attempt.envelope.store is not None and not isinstance(outcome, Interrupted):
            return await self._report(attempt, attempt.envelope.store, outcome)
        return await self._settle(attempt, outcome)

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        delivery = attempt.delivery
        match outcome:
            case Succeeded(value):
                if attempt.permits or (self._results is not None and attempt.task.plan.result is not False):
                    return await self._succeeded(attempt, outcome, value)
                delivery.ack()
                return True
            case AlreadyDone(content_type, value):
                record = self._record(attempt, JobState.SUCCEEDED, content_type=content_type, value=value)
                return await self._ended(attempt, outcome, record)
            case Retried(delay, error):
                wait = coarse_delay(to_ms(delay))
                headers: dict[str, HeaderValue] = {
                    header.ATTEMPT: attempt.envelope.attempt + 1,
                    header.ERROR: summary(error),
                }
                copy = self._copy(attempt, attempt=attempt.envelope.attempt + 1, delay=wait, headers=headers)
                self.note_retry(attempt, wait, error)
                return await self._run_later(attempt, copy)
            case Snoozed(delay):
                copy = self._copy(attempt, attempt=attempt.envelope.attempt, delay=to_ms(delay), headers={})
                return await self._run_later(attempt, copy)
            case Dead():
                return await self._dead(attempt, outcome)
            case Cancelled(reason):
                record = self._record(
                    attempt,
                    JobState.CANCELLED,
                    error=ErrorRecord(type_name="JobCancelled", message=reason, traceback=""),
                )
                return await self._ended(attempt, outcome, record)
            case Interrupted():
                delivery.requeue()
                return False
            case Parked():
                return await self.park(delivery, outcome)
            case _:
                assert_never(outcome)

    async def tell_start(self, attempt: Attempt, invitation: Invitation) -> bool:
        """Tell the store that a job of its runs now; False where the worker stops before that is confirmed."""
        return await self.reports.send(invitation, self.reports.about(attempt, invitation, "started"))

    async def _report(self, attempt: Attempt, invitation: Invitation, outcome: Outcome) -> bool:
        """Say what became of a job of the store, and acknowledge it then."""
        self.reports.run_ends(attempt)
        report, record = self._said(attempt, invitation, outcome)
        if self._is_large(report):
            # Before its guards: what they keep of it is the same value then.
            lightened = await self._lightened(attempt, report)
            if lightened is None:
                return False
            report = lightened
        if not isinstance(outcome, _GOES_ON) and not await self.release_permits(attempt, outcome, record):
            return False
        if not await self.reports.send(invitation, report):
            attempt.delivery.requeue()
            return False
        attempt.delivery.ack()
        return True

    def _is_large(self, report: Report) -> bool:
        return self._large is not None and self._large.is_large(report.result)

    async def _lightened(self, attempt: Attempt, report: Report) -> Report | None:
        """The report with a reference to its result, which is durable then; None: the delivery was given back."""
        assert self._large is not None
        backoff: Backoff | None = None
        while True:
            try:
                blob = await self._large.keep(attempt.job_id, report.result, ttl=_STORED_RESULT)
            except StateUnavailable as error:
                _log.warning("result of job %s is not stored yet: %s", attempt.job_id, error)
                backoff = backoff or _backoff()
                if not await self._pause(backoff.next()):
                    attempt.delivery.requeue()
                    return None
            else:
                return replace(report, content_type=REFERENCE, result=reference_to(report.content_type, blob))

    def _said(self, attempt: Attempt, invitation: Invitation, outcome: Outcome) -> tuple[Report, ResultRecord | None]:
        """The report of an outcome, and the job's end for its guards."""
        told = partial(self._about, attempt, invitation)
        match outcome:
            case Succeeded(value):
                content_type, encoded, failure = self._encoded(attempt, value)
                if failure is not None:
                    return self._said(attempt, invitation, failure)
                record = self._record(attempt, JobState.SUCCEEDED, content_type=content_type, value=encoded)
                return told("succeeded", content_type=content_type, result=encoded), record
            case AlreadyDone(content_type, value):
                record = self._record(attempt, JobState.SUCCEEDED, content_type=content_type, value=value)
                return told("succeeded", content_type=content_type, result=value), record
            case Retried(delay, error):
                self.note_retry(attempt, to_ms(delay), error)
                return told("retry", delay=to_ms(delay), error=error_record(error)), None
            case Snoozed(delay):
                return told("snoozed", delay=to_ms(delay)), None
            case Dead(reason, error):
                self._log_failure(attempt, f"dead ({reason})", error, has_traceback=reason == "error")
                record = self._record(attempt, JobState.FAILED, error=error_record(error))
                return told("failed", error=record.error), record
            case Cancelled(reason):
                kind: ReportKind = "expired" if _has_expired(attempt, reason) else "cancelled"
                why = ErrorRecord(type_name="JobCancelled", message=reason, traceback="")
                return told(kind, error=why), self._record(attempt, JobState.CANCELLED, error=why)
            case Parked(reason, delay):
                return told(
                    "refused", delay=_REFUSED_MS if delay is None else to_ms(delay), error=_refusal(reason)
                ), None
            case Interrupted():
                return told("interrupted"), None
            case _:
                assert_never(outcome)

    def _about(self, attempt: Attempt, invitation: Invitation, kind: ReportKind, **facts: Any) -> Report:
        started = attempt.started
        return Report(
            id=invitation.id,
            token=invitation.token,
            kind=kind,
            attempt=attempt.envelope.attempt,
            worker=self._worker,
            started=started,
            ran=0 if started is None else max(self._clock.now_ms() - started, 0),
            **facts,
        )

    def _encoded(self, attempt: Attempt, value: object) -> tuple[str, bytes, Dead | None]:
        if attempt.task.plan.result is False:
            return "", b"", None
        content_type = attempt.delivery.content_type or JSON
        try:
            encoded = encode_value(value, content_type)
        except EncodeError as error:
            return "", b"", Dead("result", error)
        if len(encoded) > self._result_limit:
            too_large = ResultTooLarge(attempt.envelope.task, size=len(encoded), limit=self._result_limit)
            return "", b"", Dead("result", too_large)
        return content_type, encoded, None

    async def release_permits(self, attempt: Attempt, outcome: Outcome, record: ResultRecord | None = None) -> bool:
        """Leave what the attempt's guards have given it.

        False: the outcome does not count, or nobody could be told of it; the delivery was given back.
        """
        backoff: Backoff | None = None
        while attempt.permits:
            try:
                counts = await attempt.permits[-1].release(outcome, record)
            except (StateUnavailable, SendError) as error:
                _log.warning("job %s has not left what its guards have given it: %s", attempt.job_id, error)
                if isinstance(outcome, Interrupted) or not await self._pause(
                    (backoff := backoff or _backoff()).next()
                ):
                    attempt.permits = None
                    attempt.delivery.requeue()
                    return False
                continue
            attempt.permits.pop()
            if not counts:
                _log.warning(
                    "job %s of task %s: %s does not count, another run has taken its place",
                    attempt.job_id,
                    attempt.envelope.task,
                    type(outcome).__name__.lower(),
                )
                await self.release_permits(attempt, Interrupted())
                attempt.delivery.requeue()
                return False
        return True

    def note_retry(self, attempt: Attempt, wait: int, error: BaseException) -> None:
        """Say that an attempt failed and is followed by another, `wait` milliseconds later."""
        self._log_failure(attempt, f"retry in {wait / 1000:g} s", error)

    async def _run_later(self, attempt: Attempt, copy: Outgoing) -> bool:
        limit = self._session.broker.max_message_bytes
        if len(copy.body) > limit:
            # The message just fitted; with its attempt and time written down it does not any more.
            error = TooLarge(len(copy.body), limit, f"the next attempt of {copy.job_id}")
            return await self._dead(attempt, Dead("error", error))
        return await self._publish_and_ack(attempt.delivery, copy)

    async def park(self, delivery: Delivery, parked: Parked) -> bool:
        """Put aside a message that is no attempt of a known task; whether that is done."""
        if (envelope := _invited(delivery)) is not None and (invitation := envelope.store) is not None:
            report = Report(
                id=invitation.id,
                token=invitation.token,
                kind="refused",
                attempt=envelope.attempt,
                worker=self._worker,
                delay=_REFUSED_MS if parked.delay is None else to_ms(parked.delay),
                error=_refusal(parked.reason),
            )
            _log.warning("job %s is refused: %s", envelope.id, parked.reason)
            if not await self.reports.send(invitation, report):
                delivery.requeue()
                return False
            delivery.ack()
            return True
        if parked.delay is not None:
            seen = delivery.headers.get(header.UNKNOWN, 0)
            count = (max(seen, 0) if isinstance(seen, int) else 0) + 1
            due = self._clock.now_ms() + to_ms(parked.delay)
            message = copy_message(delivery, due=due, headers={header.UNKNOWN: count})
            _log.info("message %s put back: %s", delivery.message_id, parked.reason)
        else:
            headers: dict[str, HeaderValue] = {
                header.REASON: parked.reason[:ERROR_LIMIT],
                header.ORIGIN: delivery.queue,
                header.DIED: self._clock.now_ms(),
                header.WORKER: self._worker,
            }
            message = copy_message(delivery, queue=PARKING, headers=headers)
            _log.error("message %s parked in %s: %s", delivery.message_id, PARKING, parked.reason)
        return await self._publish_and_ack(delivery, message)

    async def _ended(self, attempt: Attempt, outcome: Outcome, record: ResultRecord) -> bool:
        # Most attempts have no permits, and pay for no coroutine.
        if attempt.permits and not await self.release_permits(attempt, outcome, record):
            return False
        if not await self._stored(attempt, record):
            return False
        attempt.delivery.ack()
        return True

    async def _succeeded(self, attempt: Attempt, outcome: Outcome, value: object) -> bool:
        content_type, encoded, failure = self._encoded(attempt, value)
        if failure is not None:
            # The work is done; running it again would not make the value any more storable.
            return await self._dead(attempt, failure)
        record = self._record(attempt, JobState.SUCCEEDED, content_type=content_type, value=encoded)
        return await self._ended(attempt, outcome, record)

    async def _dead(self, attempt: Attempt, outcome: Dead) -> bool:
        reason, error = outcome.reason, outcome.error
        details = error_record(error)
        # Of what has another reason, the traceback is the worker's own.
        self._log_failure(attempt, f"dead ({reason})", error, has_traceback=reason == "error")
        record = self._record(attempt, JobState.FAILED, error=details)
        if not await self.release_permits(attempt, outcome, record) or not await self._stored(attempt, record):
            return False
        headers: dict[str, HeaderValue] = {
            header.REASON: reason,
            header.ERROR: summary(error),
            header.ERROR_TYPE: details.type_name[:ERROR_LIMIT],
            header.TRACEBACK: details.traceback,
            header.ATTEMPT: attempt.envelope.attempt,
            header.ORIGIN: attempt.delivery.queue,
            header.DIED: self._clock.now_ms(),
            header.WORKER: self._worker,
        }
        if attempt.started is not None:
            headers[header.STARTED] = attempt.started
        if isinstance(error, WorkerLost) and error.starts is not None:
            headers[header.STARTS] = error.starts
        letter = self._copy(
            attempt,
            attempt=attempt.envelope.attempt,
            delay=None,
            headers=headers,
            queue=dead_letter_queue(attempt.delivery.queue),
        )
        return await self._publish_and_ack(attempt.delivery, letter)

    def _copy(
        self,
        original: Attempt,
        *,
        attempt: int,
        delay: int | None,
        headers: Mapping[str, HeaderValue],
        queue: str | None = None,
    ) -> Outgoing:
        delivery = original.delivery
        level = self._app.producer.queue(logical_queue(delivery.queue)).native_priority(original.envelope.priority)
        eta = None if delay is None else min(self._clock.now_ms() + delay, LAST_INSTANT)
        body = amend(delivery.body, delivery.content_type, {"id": original.job_id, "attempt": attempt, "eta": eta})
        return copy_message(
            delivery,
            envelope=original.envelope,
            job_id=original.job_id,
            body=body,
            queue=queue,
            due=eta,
            headers={**headers, **_level(level if queue is not None else None)},
            # A dead letter keeps the order in which it came, and knows what it is to get when it is replayed.
            priority=level if queue is None else None,
        )

    def _record(
        self,
        attempt: Attempt,
        state: JobState,
        *,
        content_type: str = "",
        value: bytes = b"",
        error: ErrorRecord | None = None,
    ) -> ResultRecord:
        return ResultRecord(
            job_id=attempt.job_id,
            task=attempt.envelope.task,
            state=state,
            attempt=attempt.envelope.attempt,
            content_type=content_type,
            value=value,
            error=error,
            started=attempt.started,
            finished=self._clock.now_ms(),
            worker=self._worker,
        )

    async def _stored(self, attempt: Attempt, record: ResultRecord) -> bool:
        """True once the record is durable or none is kept; False when the delivery was given back instead."""
        if self._results is None or attempt.task.plan.result is False:
            return True
        backoff: Backoff | None = None
        while True:
            try:
                await self._results.put(record, ttl=attempt.task.plan.result_ttl or self._app.jobs.result_ttl)
            except StateUnavailable as error:
                _log.warning("result of job %s is not stored yet: %s", attempt.job_id, error)
                backoff = backoff or _backoff()
                if not await self._pause(backoff.next()):
                    attempt.delivery.requeue()
                    return False
            else:
                return True

    async def _publish_and_ack(self, delivery: Delivery, message: Outgoing) -> bool:
        backoff = _backoff()
        for attempt in range(1, _PUBLISH_TRIES + 1):
            try:
                # Publish before ack: a crash here repeats the attempt, the other order would lose it.
                await self._session.declare_and_publish(
                    self._app.producer.queue(logical_queue(delivery.queue)), message
                )
            except SendError as error:
                _log.warning("copy of job %s for %s is not published: %s", message.job_id, message.queue, error)
                if attempt == _PUBLISH_TRIES or not await self._pause(backoff.next()):
                    break
                if isinstance(error, EncodeError):
                    # The sender's headers and ours together may be more than the broker takes.
                    message = replace(message, headers=_own(message.headers))
                elif isinstance(error, TooLarge) and message.due is None:
                    # A letter's own additions are what is too much: the body as it came fits.
                    message = replace(message, body=delivery.body)
            else:
                delivery.ack()
                return True
        delivery.requeue()
        return False

    async def _pause(self, seconds: float) -> bool:
        """Whether to go on trying."""
        return not await pause(self._is_stopping, seconds)

    def _log_failure(self, attempt: Attempt, what: str, error: BaseException, *, has_traceback: bool = False) -> None:
        envelope, said = attempt.envelope, self._log_errors
        shows_traceback = said == "traceback" and (has_traceback or _log.isEnabledFor(logging.DEBUG))
        _log.warning(
            "job %s of task %s, attempt %d: %s: %s",
            attempt.job_id,
            envelope.task,
            envelope.attempt,
            what,
            type_name(error) if said == "type" else " ".join(summary(error).split()),
            exc_info=error if shows_traceback and has_form(error) else None,
            # One that was refused has had no run whose fields the record could take.
            extra={
                "job_id": attempt.job_id,
                "task": envelope.task,
                "attempt": envelope.attempt,
                "queue": logical_queue(attempt.delivery.queue),
            },
        )


def _refusal(reason: str) -> ErrorRecord:
    return ErrorRecord(type_name="Refused", message=storable(reason[:ERROR_LIMIT]), traceback="")


def _has_expired(attempt: Attempt, reason: str) -> bool:
    return attempt.cancelled is None and attempt.started is None and reason == EXPIRED


def _invited(delivery: Delivery) -> Envelope | None:
    """What an invitation says that no attempt was made of; None where the message cannot be read at all."""
    try:
        return decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return None


def _backoff() -> Backoff:
    # Made when something has failed: most messages need none.
    return Backoff(_PAUSE, _LONGEST_PAUSE)


async def _is_void(delivery: Delivery) -> bool:
    if not isinstance(delivery, Revocable):
        return False
    for _ in range(_TURNS):
        if delivery.revoked:
            return True
        # After the loop has stood, the end of its connection is not read yet.
        await asyncio.sleep(0)
    return delivery.revoked


def _level(priority: int | None) -> dict[str, HeaderValue]:
    return {} if priority is None else {header.PRIORITY: priority}


def _own(headers: Mapping[str, HeaderValue]) -> dict[str, HeaderValue]:
    return {name: value for name, value in headers.items() if name.startswith(header.OWN)}
