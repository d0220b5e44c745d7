"""Settling of stored jobs: outcomes are reported, and then acknowledged. Nothing is stored or published."""

import logging
from datetime import timedelta
from functools import partial
from typing import Any, Final, assert_never

from msgspec.structs import replace

from taskmq.client.large_values import LargeValues
from taskmq.contracts.broker import Delivery
from taskmq.contracts.stores import ErrorRecord, ResultRecord
from taskmq.errors import StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.jobs.reports import INTERRUPTED, PREEMPTED, Report, ReportKind
from taskmq.model.outcome import (
    EXPIRED,
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
from taskmq.model.runs.records import MOST_VALUE_BYTES
from taskmq.model.states import JobState
from taskmq.model.units import storable, to_ms
from taskmq.model.values.light_values import REFERENCE, reference_to
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.error_text import ERROR_LIMIT, ErrorTexts
from taskmq.worker.settlement.patience import SettlingPatience
from taskmq.worker.settlement.permits import release_permits
from taskmq.worker.settlement.records import EndRecords, FailureLog
from taskmq.worker.settlement.reports import ReportSender

_log = logging.getLogger("taskmq.worker")

# Outcomes without a record of the job's end; their permits are released already.
_GOES_ON: Final = (Retried, Snoozed, Interrupted)
# Seconds: a day longer than stores keep an ended job.
_STORED_RESULT: Final = 31 * 86_400.0
# Another worker may be able to run a job that this one can never run.
_REFUSED_MS: Final = 60_000


class StoredJobSettler:
    """Settles deliveries of stored jobs.

    Args:
        worker: the worker's name.
        app_version: the version of its app.
        large: stores results that are too large for a report; None if there is no such store.
    """

    def __init__(
        self,
        reports: ReportSender,
        *,
        worker: str,
        app_version: str,
        clock: Clock,
        records: EndRecords,
        failures: FailureLog,
        texts: ErrorTexts,
        patience: SettlingPatience,
        large: LargeValues | None,
    ) -> None:
        self._reports = reports
        self._worker = worker
        self._app_version = app_version
        self._clock = clock
        self._records = records
        self._failures = failures
        self._texts = texts
        self._patience = patience
        self._large = large

    def settle_at_once(self, attempt: Attempt, invitation: Invitation, outcome: Succeeded) -> bool:
        """Report a success while the next job runs; return False if that would have to wait."""
        self._reports.run_ends(attempt)
        execution = attempt.execution
        return self.settle_success(
            attempt.delivery,
            attempt.envelope,
            invitation,
            attempt.task,
            outcome.value,
            started=attempt.started,
            processor=None if execution is None else execution.processor,
            peak_memory=None if execution is None else execution.peak_memory,
        )

    def settle_success(
        self,
        delivery: Delivery,
        envelope: Envelope,
        invitation: Invitation,
        task: Task[..., Any],
        value: object,
        *,
        started: int | None,
        processor: int | None = None,
        peak_memory: int | None = None,
    ) -> bool:
        """Report the success of a run without a journal; return False if the value cannot be reported at once.

        Args:
            processor, peak_memory: of the run, see `Report`.
        """
        content_type, result, failure = self._records.encode_result(task, value, delivery.content_type)
        if failure is not None or self._is_large(envelope, result):
            return False
        report = Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind="succeeded",
            attempt=envelope.attempt,
            worker=self._worker,
            started=started,
            ran=0 if started is None else max(self._clock.now_ms() - started, 0),
            processor=processor,
            peak_memory=peak_memory,
            content_type=content_type,
            result=result,
            has_saved=_has_saved(invitation),
        )
        self._reports.tell(invitation, report, delivery, is_awaited=_is_awaited(envelope))
        return True

    async def settle(self, attempt: Attempt, invitation: Invitation, outcome: Outcome) -> bool:
        """Report what became of the job, then acknowledge it; whether it was taken off the broker.

        Raises:
            StateUnavailable: a large result could not be stored in time; nothing is settled.
        """
        self._reports.run_ends(attempt)
        report, record = self._report_of_outcome(attempt, invitation, outcome)
        if self._is_large(attempt.envelope, report.result):
            # Before its guards: what they keep of it is the same value then.
            lightened = await self._store_large_result(attempt, report)
            if lightened is None:
                return False
            report = lightened
        if not isinstance(outcome, _GOES_ON) and not await release_permits(
            attempt, outcome, record, patience=self._patience
        ):
            return False
        return await self._send(invitation, report, attempt.delivery, is_awaited=_is_awaited(attempt.envelope))

    async def refuse(self, envelope: Envelope, invitation: Invitation, delivery: Delivery, parked: Parked) -> bool:
        """Report that this worker cannot run the job; return whether it was removed from the broker."""
        _log.warning("job %s: refused: %s", envelope.id, parked.reason)
        report = Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind="refused",
            attempt=envelope.attempt,
            worker=self._worker,
            delay=_refusal_delay(parked),
            error=_refusal(parked),
        )
        return await self._send(invitation, report, delivery)

    def return_unrun(
        self, envelope: Envelope, invitation: Invitation, delivery: Delivery, *, is_redelivered: bool
    ) -> None:
        """Return a job to its scheduler without a run, then acknowledge its message.

        Args:
            is_redelivered: whether the message came a second time.
        """
        report = Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind="interrupted",
            attempt=envelope.attempt,
            worker=self._worker,
            redelivered=is_redelivered,
        )
        self._reports.tell(invitation, report, delivery)

    async def _send(
        self, invitation: Invitation, report: Report, delivery: Delivery, *, is_awaited: bool = False
    ) -> bool:
        if not await self._reports.send(invitation, report, is_awaited=is_awaited):
            delivery.requeue()
            return False
        delivery.ack()
        return True

    def _is_large(self, envelope: Envelope, result: bytes) -> bool:
        # The run keeps the value of a step, and later steps need it in their arguments.
        if self._large is None or (envelope.step_of is not None and len(result) <= MOST_VALUE_BYTES):
            return False
        return self._large.is_large(result)

    async def _store_large_result(self, attempt: Attempt, report: Report) -> Report | None:
        """Store a large result and return the report with a reference to it; None: the delivery was returned."""
        assert self._large is not None
        keep = partial(self._large.keep, attempt.job_id, report.result, ttl=_STORED_RESULT)
        try:
            blob = await self._patience.until_kept(keep, job_id=attempt.job_id)
        except StateUnavailable:
            if not self._patience.is_over.is_set():
                raise
            attempt.delivery.requeue()
            return None
        return replace(report, content_type=REFERENCE, result=reference_to(report.content_type, blob))

    def _report_of_outcome(
        self, attempt: Attempt, invitation: Invitation, outcome: Outcome
    ) -> tuple[Report, ResultRecord | None]:
        """Build the report of an outcome, and the record of the job's end for its guards."""
        told, ended = partial(self._build_report, attempt, invitation), partial(self._records.record, attempt)
        match outcome:
            case Succeeded(value):
                content_type, encoded, failure = self._records.encode_result(
                    attempt.task, value, attempt.delivery.content_type
                )
                if failure is not None:
                    return self._report_of_outcome(attempt, invitation, failure)
                record = ended(JobState.SUCCEEDED, content_type=content_type, value=encoded)
                return told("succeeded", content_type=content_type, result=encoded), record
            case AlreadyDone(content_type, value):
                record = ended(JobState.SUCCEEDED, content_type=content_type, value=value)
                return told("succeeded", content_type=content_type, result=value), record
            case Retried(delay, error):
                self._failures.note_retry(attempt, to_ms(delay), error)
                return told("retry", delay=to_ms(delay), error=self._texts.record(error)), None
            case Snoozed():
                return self._report_of_snooze(attempt, invitation, outcome), None
            case Dead(_, error):
                self._failures.note_death(attempt, outcome)
                record = ended(JobState.FAILED, error=self._texts.record(error))
                return told("failed", error=record.error), record
            case Cancelled(reason):
                kind: ReportKind = "expired" if _has_expired(attempt, reason) else "cancelled"
                why = ErrorRecord(type_name="JobCancelled", message=reason, traceback="")
                return told(kind, error=why), ended(JobState.CANCELLED, error=why)
            case Parked():
                return told("refused", delay=_refusal_delay(outcome), error=_refusal(outcome)), None
            case Interrupted(delay=timedelta() as delay, error=BaseException() as error):
                self._failures.note_outage(attempt, to_ms(delay), error)
                outage = ErrorRecord(type_name=INTERRUPTED, message=f"outage: {self._texts.summary(error)}")
                return told("snoozed", delay=to_ms(delay), error=outage), None
            case Interrupted(reason):
                type_name = INTERRUPTED if attempt.preempted is None else PREEMPTED
                # A job that has not started lost nothing.
                stopped = None if attempt.started is None else ErrorRecord(type_name=type_name, message=reason)
                return told("interrupted", error=stopped, limited=attempt.is_turned_back), None
            case _:
                assert_never(outcome)

    def _report_of_snooze(self, attempt: Attempt, invitation: Invitation, outcome: Snoozed) -> Report:
        told, delay, reason = (
            partial(self._build_report, attempt, invitation),
            to_ms(outcome.delay),
            outcome.suspension,
        )
        if outcome.is_held:
            _log.error(
                "job %s: held: %s: release it once all workers have the code that began it", attempt.job_id, reason
            )
            why = ErrorRecord(type_name=MISMATCH, message=reason)
            return told("held", version=self._app_version, error=why)
        if not reason:
            return told("snoozed", delay=delay, limited=outcome.is_limited)
        why = ErrorRecord(type_name=SUSPENDED, message=reason)
        return told("snoozed", delay=delay, until=outcome.until, saves=_count_saves(attempt, invitation), error=why)

    def _build_report(self, attempt: Attempt, invitation: Invitation, kind: ReportKind, **facts: Any) -> Report:
        started = attempt.started
        ran = 0 if started is None else max(self._clock.now_ms() - started, 0)
        execution = attempt.execution
        journal = None if execution is None else execution.context.journal
        return Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind=kind,
            attempt=attempt.envelope.attempt,
            worker=self._worker,
            started=started,
            ran=ran,
            processor=None if execution is None else execution.processor,
            peak_memory=None if execution is None else execution.peak_memory,
            has_saved=_has_saved(invitation) or (journal is not None and journal.has_saved),
            **facts,
        )


def _is_awaited(envelope: Envelope) -> bool:
    """Whether a run of a workflow may wait for the end of this job alone; children of a step have siblings."""
    return envelope.step_of is not None and not envelope.step_of.endswith("]")


def _has_saved(invitation: Invitation) -> bool:
    """Whether earlier runs of the job saved values."""
    return invitation.saves > 0 or invitation.saved is not None


def _count_saves(attempt: Attempt, invitation: Invitation) -> int:
    """Return the number of saves of the job that its run knows."""
    journal = None if attempt.execution is None else attempt.execution.context.journal
    return invitation.saves + (0 if journal is None else len(journal.saved))


def _has_expired(attempt: Attempt, reason: str) -> bool:
    return attempt.cancelled is None and attempt.started is None and reason == EXPIRED


def _refusal(parked: Parked) -> ErrorRecord:
    return ErrorRecord(type_name="Refused", message=storable(parked.reason[:ERROR_LIMIT]), traceback="")


def _refusal_delay(parked: Parked) -> int:
    return _REFUSED_MS if parked.delay is None else to_ms(parked.delay)
