"""What comes to a reports queue beside reports that count: dropped invitations, unknown jobs, unreadable messages.

The queues of a partition's invitations dead-letter into the partition's reports queue, so that the store learns of
each job that the broker has dropped. What is for people goes to the parking queue, with the reason on it.
"""

from typing import Final

from taskmq.client.session import Session
from taskmq.contracts.broker import Delivery, Outgoing
from taskmq.contracts.republish import copy_message
from taskmq.errors import MalformedMessage
from taskmq.model import headers as header
from taskmq.model.clock import Clock
from taskmq.model.envelope import JSON, decode_envelope
from taskmq.model.jobs.reports import Report, encode_reports
from taskmq.model.outcome import ErrorRecord
from taskmq.model.topology import PARKING
from taskmq.model.units import instant_text

__all__ = ["WORKER_LOST", "ParkedReports", "report_of_letter", "worker_lost"]

# So that a queue which refuses or drops everything is no reason for a loop.
_DROPPED_DELAY: Final = 1_000
_DELIVERY_LIMIT: Final = "delivery_limit"
WORKER_LOST: Final = "WorkerLost"
"""The type of the error of an attempt whose worker is gone."""


def report_of_letter(delivery: Delivery) -> Report | None:
    """What follows from an invitation that the broker has dropped; None where the message is none.

    One that was given back too often has taken its workers with it, and fails. One that was dropped for any other
    reason was not run, and is dispatched again.
    """
    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return None
    if (invitation := envelope.store) is None:
        return None
    reason = delivery.headers.get(header.REASON)
    if reason == _DELIVERY_LIMIT:
        return Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            attempt=envelope.attempt,
            kind="failed",
            error=worker_lost("its message came back from workers that died too often: the queue's delivery limit"),
        )
    return Report(
        id=invitation.id,
        token=invitation.token,
        proof=invitation.proof,
        attempt=envelope.attempt,
        kind="snoozed",
        delay=_DROPPED_DELAY,
        error=ErrorRecord(type_name="", message=f"the broker has dropped its message: {reason}", traceback=""),
    )


def worker_lost(message: str) -> ErrorRecord:
    """The error of an attempt whose worker is gone."""
    return ErrorRecord(type_name=WORKER_LOST, message=message, traceback="")


class ParkedReports:
    """Puts aside what does not count.

    Args:
        name: of the reports queue.
    """

    def __init__(self, session: Session, clock: Clock, *, name: str) -> None:
        self._session = session
        self._clock = clock
        self._name = name

    async def park(self, delivery: Delivery, reason: str) -> None:
        """Keep a message as it came.

        Raises:
            SendError: it is not kept.
        """
        await self._session.publish(
            copy_message(delivery, job_id=delivery.message_id or "", queue=PARKING, headers=self._headers(reason))
        )

    async def park_report(self, report: Report, reason: str) -> None:
        """Keep one report alone.

        Raises:
            SendError: it is not kept.
        """
        (body,) = encode_reports([report])
        await self._keep(body, reason, job_id=report.id)

    async def park_part(self, body: bytes, reason: str) -> None:
        """Keep what should be a report, and is none; as a list, as reports are.

        Raises:
            SendError: it is not kept.
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
