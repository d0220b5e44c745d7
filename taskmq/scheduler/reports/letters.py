"""Messages in a reports queue that are no valid reports: dropped invitations, unknown jobs, malformed messages.

The queues of a partition's invitations dead-letter into the partition's reports queue, so the store learns of each
invitation that the broker dropped. Messages for people go to the parking queue, with the reason.
"""

from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker import Delivery, Outgoing
from taskmq.contracts.republish import copy_message
from taskmq.errors import MalformedMessage
from taskmq.model import headers as header
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, decode_envelope
from taskmq.model.jobs.reports import Report, decode_parcel, encode_reports
from taskmq.model.outcome import ErrorRecord
from taskmq.model.topology import PARKING
from taskmq.model.units import instant_text

# Prevents a tight loop if a queue refuses or drops everything.
_DROPPED_DELAY: Final = 1_000
_DELIVERY_LIMIT: Final = "delivery_limit"
WORKER_LOST: Final = "WorkerLost"
"""Error type of an attempt whose worker died."""


def reports_of_letter(delivery: Delivery) -> list[Report]:
    """Build the reports for invitations that the broker dropped; empty if the message is no invitation.

    A single job that reached the delivery limit has killed its workers, and fails. A job dropped for another reason
    was not run, and is dispatched again. So is each job of a parcel, because any of them may have killed the workers.
    """
    reason = delivery.headers.get(header.REASON)
    try:
        invitations = decode_parcel(delivery.body)
    except MalformedMessage:
        report = _report_of(delivery.body, delivery.content_type, reason, is_alone=True)
        return [] if report is None else [report]
    reports = [_report_of(each, JSON, reason, is_alone=False) for each in invitations]
    return [report for report in reports if report is not None]


def _report_of(body: bytes, content_type: str | None, reason: object, *, is_alone: bool) -> Report | None:
    try:
        envelope = decode_envelope(body, content_type)
    except MalformedMessage:
        return None
    if (invitation := envelope.store) is None:
        return None
    if reason == _DELIVERY_LIMIT and is_alone:
        return Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            attempt=envelope.attempt,
            kind="failed",
            by_scheduler=True,
            error=worker_lost("its workers died too often: its message reached the queue's delivery limit"),
        )
    return Report(
        id=invitation.id,
        token=invitation.token,
        proof=invitation.proof,
        attempt=envelope.attempt,
        kind="snoozed",
        delay=_DROPPED_DELAY,
        error=ErrorRecord(type_name="", message=f"the broker dropped its message: {reason}", traceback=""),
    )


def worker_lost(message: str) -> ErrorRecord:
    """Build the error of an attempt whose worker died."""
    return ErrorRecord(type_name=WORKER_LOST, message=message, traceback="")


class ParkedReports:
    """Publisher of unusable messages to the parking queue.

    Args:
        name: name of the reports queue.
    """

    def __init__(self, session: Session, clock: Clock, *, name: str) -> None:
        self._session = session
        self._clock = clock
        self._name = name

    async def park(self, delivery: Delivery, reason: str) -> None:
        """Park a message unchanged.

        Raises:
            SendError: the message was not parked.
        """
        await self._session.publish(
            copy_message(delivery, job_id=delivery.message_id or "", queue=PARKING, headers=self._headers(reason))
        )

    async def park_report(self, report: Report, reason: str) -> None:
        """Park a single report.

        Raises:
            SendError: the message was not parked.
        """
        (body,) = encode_reports([report])
        await self._keep(body, reason, job_id=report.id)

    async def park_part(self, body: bytes, reason: str) -> None:
        """Park a malformed part of a message as a list, in the form of reports.

        Raises:
            SendError: the message was not parked.
        """
        await self._keep(b"[%s]" % body, reason, job_id="")

    async def _keep(self, body: bytes, reason: str, *, job_id: str) -> None:
        message = Outgoing(
            queue=PARKING,
            body=body,
            content_type=JSON,
            job_id=job_id,
            task="taskmq.reports",
            headers=self._headers(reason),
        )
        await self._session.publish(message)

    def _headers(self, reason: str) -> dict[str, str | int]:
        return {
            header.REASON: reason[:500],
            header.ORIGIN: self._name,
            header.DIED: instant_text(self._clock.now_ms()),
        }
