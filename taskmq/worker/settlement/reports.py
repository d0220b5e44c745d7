"""Reports of a worker on stored jobs, published and confirmed before a delivery is acknowledged.

    settle -> report -> batched for two milliseconds, unless a run of a workflow waits for it,
                        and until the previous message is confirmed
           -> one message for each queue -> confirmed -> acknowledged

A stored job arrives as an invitation (`Envelope.store`). The worker stores and publishes nothing else of it: no
result, no copy, no dead letter. The store decides what follows from a report. Publishing reports is retried until the
worker stops; waiting is better than running a job twice. A success does not keep its slot meanwhile; the prefetch
limits the number of unacknowledged deliveries.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.broker import Broker, Delivery, Outgoing
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import EncodeError, SendError, TaskMQError, TooLarge, Unroutable
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import JSON, Invitation
from taskmq.model.jobs.reports import REPORTS_TASK, Report, ReportKind, encode_reports, goes_on
from taskmq.model.outcome import ErrorRecord
from taskmq.model.topology import ReportQueue
from taskmq.worker.attempt import Attempt
from taskmq.worker.run_logs import RunLines

_log = logging.getLogger("taskmq.worker")

_LINGER: Final = 0.002
# Shorter runs are reported with their ends.
_STARTED_AFTER: Final = 0.25
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


class _Pack:
    """Reports for one queue that are published together.

    Attributes:
        deliveries: of each report, the delivery that its confirm settles; None if there is none.
        answers: of each report, the future that gets whether it is confirmed; None if no call waits for it.
    """

    __slots__ = ("answers", "deliveries", "reports")

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.deliveries: list[Delivery | None] = []
        self.answers: list[asyncio.Future[bool] | None] = []

    def add(self, report: Report, delivery: Delivery | None, answer: "asyncio.Future[bool] | None") -> None:
        self.reports.append(report)
        self.deliveries.append(delivery)
        self.answers.append(answer)

    def divide(self) -> "list[_Pack]":
        """Return a pack for each report."""
        packs = [_Pack() for _ in self.reports]
        for pack, report, delivery, answer in zip(packs, self.reports, self.deliveries, self.answers, strict=True):
            pack.add(report, delivery, answer)
        return packs


class ReportSender:
    """Publishes the reports of one worker.

    Args:
        worker: its name.
        timeout: maximum seconds of a publish.
        stopping: once it is set, unconfirmed reports are abandoned.
        logs: captured log lines, sent before the reports of their runs; None: no capture.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        worker: str,
        timeout: float,
        stopping: asyncio.Event,
        logs: RunLines | None = None,
    ) -> None:
        self._logs = logs
        self._broker = broker
        self._worker = worker
        self._timeout = timeout
        self._stopping = stopping
        self._waiting: dict[str, _Pack] = {}
        # Queues with an unconfirmed message.
        self._busy: set[str] = set()
        self._publishing = TaskSet("worker reports", failure="reports were not published")
        self._starts: dict[Attempt, asyncio.TimerHandle] = {}
        self._told = 0
        self._all_told = asyncio.Event()
        self._all_told.set()

    @property
    def is_telling(self) -> bool:
        """Whether some report is not settled yet."""
        return bool(self._told)

    async def all_told(self) -> None:
        """Return once all reports are settled."""
        await self._all_told.wait()

    def tell(self, invitation: Invitation, report: Report, delivery: Delivery, *, is_awaited: bool = False) -> None:
        """Report; acknowledge the delivery once that is confirmed, or return it if the worker stops before.

        Args:
            is_awaited: whether the report is not to wait for others.
        """
        self._told += 1
        self._all_told.clear()
        self._add(invitation, report, delivery=delivery, is_awaited=is_awaited)

    async def send(self, invitation: Invitation, report: Report, *, is_awaited: bool = False) -> bool:
        """Return True once the report is confirmed, or False if the worker stops before.

        Args:
            is_awaited: whether the report is not to wait for others.
        """
        confirmed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._add(invitation, report, answer=confirmed, is_awaited=is_awaited)
        return await confirmed

    def add(self, invitation: Invitation, report: Report) -> None:
        """Send the report before later ones of the job, without waiting; it may be lost if the worker stops."""
        self._add(invitation, report)

    def run_begins(self, attempt: Attempt, invitation: Invitation) -> None:
        """Report the start of an attempt that still runs after a quarter of a second."""
        loop = asyncio.get_running_loop()
        self._starts[attempt] = loop.call_later(_STARTED_AFTER, self._tell_start, attempt, invitation)

    def run_ends(self, attempt: Attempt) -> None:
        """Stop the pending start report of an ended run."""
        if (timer := self._starts.pop(attempt, None)) is not None:
            timer.cancel()

    def about(self, attempt: Attempt, invitation: Invitation, kind: ReportKind) -> Report:
        """Create a report on the attempt's run that is not its end."""
        return Report(
            id=invitation.id,
            token=invitation.token,
            proof=invitation.proof,
            kind=kind,
            attempt=attempt.envelope.attempt,
            worker=self._worker,
            started=attempt.started,
        )

    def _tell_start(self, attempt: Attempt, invitation: Invitation) -> None:
        self._starts.pop(attempt, None)
        self.add(invitation, self.about(attempt, invitation, "started"))

    def _add(
        self,
        invitation: Invitation,
        report: Report,
        *,
        delivery: Delivery | None = None,
        answer: "asyncio.Future[bool] | None" = None,
        is_awaited: bool = False,
    ) -> None:
        """Add the report to the next pack of its queue."""
        queue = invitation.reports
        if (pack := self._waiting.get(queue)) is None:
            pack = self._waiting[queue] = _Pack()
            if queue not in self._busy:
                # A run waits until its value is saved.
                linger = 0.0 if is_awaited or report.saving is not None else _LINGER
                asyncio.get_running_loop().call_later(linger, self._flush, queue)
        pack.add(report, delivery, answer)

    def _settle(self, pack: _Pack, *, is_confirmed: bool) -> None:
        for delivery, answer in zip(pack.deliveries, pack.answers, strict=True):
            if delivery is not None:
                self._told -= 1
                if is_confirmed:
                    delivery.ack()
                else:
                    delivery.requeue()
            elif answer is not None and not answer.done():
                answer.set_result(is_confirmed)
        if not self._told:
            self._all_told.set()

    def _flush(self, queue: str) -> None:
        self._busy.add(queue)
        self._publishing.start(self._publish(queue, self._waiting.pop(queue)))

    async def _publish(self, queue: str, pack: _Pack) -> None:
        left = deque([pack])
        try:
            if self._logs is not None:
                await self._logs.send(
                    # Another run of a redelivered job may go on here, and log more lines.
                    queue,
                    [
                        (report.id, report.token)
                        for report in pack.reports
                        if not goes_on(report.kind) and not report.redelivered
                    ],
                )
            while left:
                try:
                    is_confirmed = await self._publish_together(queue, left[0].reports)
                except (EncodeError, TooLarge):
                    # One of them cannot be sent: publish each separately.
                    left.extendleft(reversed(left.popleft().divide()))
                else:
                    self._settle(left.popleft(), is_confirmed=is_confirmed)
        finally:
            for unsettled in left:
                self._settle(unsettled, is_confirmed=False)
            self._busy.discard(queue)
            if queue in self._waiting:
                self._flush(queue)

    async def _publish_together(self, queue: str, reports: Sequence[Report]) -> bool:
        """Return whether the reports are confirmed; a single one that cannot be sent is dropped, or loses its result.

        Raises:
            EncodeError, TooLarge: one of several reports cannot be sent.
        """
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                for body in encode_reports(reports):
                    message = Outgoing(queue=queue, body=body, content_type=JSON, job_id="", task=REPORTS_TASK)
                    await self._broker.publish(message, timeout=self._timeout)
            except (EncodeError, TooLarge) as error:
                if len(reports) > 1:
                    raise
                (report,) = reports
                if goes_on(report.kind) or isinstance(error, EncodeError):
                    _log.error("job %s: dropping a report that cannot be sent: %s", report.id, error)
                    return False
                reports = [_without_result(report, error)]
            except SendError as error:
                _log.warning("publishing %d reports to %s failed, will retry: %s", len(reports), queue, error)
                if await pause(self._stopping, backoff.next()):
                    return False
                if isinstance(error, Unroutable):
                    await self._declare(queue)
            else:
                return True

    async def _declare(self, queue: str) -> None:
        try:
            await self._broker.declare_reports([ReportQueue(queue)])
        except TaskMQError as error:
            _log.warning("queue %s cannot be declared: %s", queue, error)


def _without_result(report: Report, error: TooLarge) -> Report:
    record = ErrorRecord(
        type_name="TooLarge",
        message=f"the result does not fit into a message, and results_at= does not keep it elsewhere: {error}",
        traceback="",
    )
    return Report(
        id=report.id,
        token=report.token,
        proof=report.proof,
        kind="failed",
        attempt=report.attempt,
        worker=report.worker,
        started=report.started,
        ran=report.ran,
        processor=report.processor,
        peak_memory=report.peak_memory,
        error=record,
    )
