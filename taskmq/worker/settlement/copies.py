"""Copies of received messages: a job's next message, its dead letter, or what is parked.

Copies never carry what the broker has written on the original.
"""

from collections.abc import Mapping

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery, HeaderValue, Outgoing
from taskmq.contracts.republish import copy_message
from taskmq.contracts.stores import ErrorRecord
from taskmq.errors import WorkerLost
from taskmq.model import headers as header
from taskmq.model.envelope import amend
from taskmq.model.outcome import Dead
from taskmq.model.topology import PARKING, dead_letter_queue, logical_queue
from taskmq.model.units import LAST_INSTANT, instant_text
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.error_text import ERROR_LIMIT, ErrorTexts
from taskmq.worker.settlement.outages import count_outages


class MessageCopies:
    """Builder of the copies that one worker publishes."""

    def __init__(self, app: TaskMQ, texts: ErrorTexts, *, worker: str) -> None:
        self._app = app
        self._clock = app.sessions.clock
        self._texts = texts
        self._worker = worker

    def next_attempt(self, attempt: Attempt, delay: int, error: BaseException) -> Outgoing:
        """Copy the message for the next attempt, `delay` milliseconds from now."""
        number = attempt.envelope.attempt + 1
        headers: dict[str, HeaderValue] = {header.ATTEMPT: number, header.ERROR: self._texts.summary(error)}
        return self._copy(attempt, number=number, delay=delay, headers=headers)

    def same_attempt(self, attempt: Attempt, delay: int, *, new_outages: int = 0) -> Outgoing:
        """Copy the message for a later run of the same attempt, `delay` milliseconds from now."""
        outages = count_outages(attempt) + new_outages
        headers: dict[str, HeaderValue] = {header.OUTAGES: outages} if outages else {}
        return self._copy(attempt, number=attempt.envelope.attempt, delay=delay, headers=headers)

    def unknown_task(self, delivery: Delivery, delay: int) -> Outgoing:
        """Copy a message that no worker may run yet, for another look `delay` milliseconds from now."""
        seen = delivery.headers.get(header.UNKNOWN, 0)
        count = (max(seen, 0) if isinstance(seen, int) else 0) + 1
        return copy_message(delivery, due=self._clock.now_ms() + delay, headers={header.UNKNOWN: count})

    def parked_message(self, delivery: Delivery, reason: str) -> Outgoing:
        """Copy a message for the parking queue."""
        headers: dict[str, HeaderValue] = {header.REASON: reason[:ERROR_LIMIT], **self._origin(delivery)}
        return copy_message(delivery, queue=PARKING, headers=headers)

    def dead_letter(self, attempt: Attempt, outcome: Dead, details: ErrorRecord) -> Outgoing:
        """Copy the message of a failed job for the dead-letter queue."""
        headers: dict[str, HeaderValue] = {
            header.REASON: outcome.reason,
            header.ERROR: self._texts.summary(outcome.error),
            header.ERROR_TYPE: details.type_name[:ERROR_LIMIT],
            header.TRACEBACK: details.traceback,
            header.ATTEMPT: attempt.envelope.attempt,
            **self._origin(attempt.delivery),
        }
        if attempt.started is not None:
            headers[header.STARTED] = instant_text(attempt.started)
        if isinstance(outcome.error, WorkerLost) and outcome.error.starts is not None:
            headers[header.STARTS] = outcome.error.starts
        queue = dead_letter_queue(attempt.delivery.queue)
        return self._copy(attempt, number=attempt.envelope.attempt, delay=None, headers=headers, queue=queue)

    def _origin(self, delivery: Delivery) -> dict[str, HeaderValue]:
        return {
            header.ORIGIN: delivery.queue,
            header.DIED: instant_text(self._clock.now_ms()),
            header.WORKER: self._worker,
        }

    def _copy(
        self,
        attempt: Attempt,
        *,
        number: int,
        delay: int | None,
        headers: Mapping[str, HeaderValue],
        queue: str | None = None,
    ) -> Outgoing:
        delivery = attempt.delivery
        level = self._app.producer.queue(logical_queue(delivery.queue)).native_priority(attempt.envelope.priority)
        eta = None if delay is None else min(self._clock.now_ms() + delay, LAST_INSTANT)
        if queue is not None and level is not None:
            # A dead letter keeps its order of arrival, and records its priority for a replay.
            headers = {**headers, header.PRIORITY: level}
        return copy_message(
            delivery,
            envelope=attempt.envelope,
            job_id=attempt.job_id,
            body=amend(delivery.body, delivery.content_type, {"id": attempt.job_id, "attempt": number, "eta": eta}),
            queue=queue,
            due=eta,
            headers=headers,
            priority=level if queue is None else None,
        )
