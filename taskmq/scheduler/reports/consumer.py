"""Reports of workers about jobs of one partition: read from its queue, applied together, then acknowledged.

    deliveries -> up to 500 reports -> apply (`applier`) -> ack; few: 10 ms later
                                       | the store is down: the consumer stops and starts again later
                  log lines, progress               -> the store, before the reports of their runs
                  runs of sent jobs                 -> the store
                  values to save                    -> the store -> answered
                  redelivered invitations           -> after all reports before them: `returned_jobs`
                  no report: an invitation that the broker dropped -> the job is dispatched again, fails, or
                                                                      continues if another copy runs it
                             anything else                         -> parking

An `alive` report about a job that runs without a message only updates the ledger, not the store.

After few reports, the next ones wait for 10 ms, so that they share a transaction. They do not after a single report
about a step of a run: in a chain of steps, the next one is alone as well.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final

import msgspec

from taskmq.client.session import Session
from taskmq.contracts.broker import Consumer, Delivery, Subscription
from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import JobStore
from taskmq.durable.service import pause
from taskmq.errors import (
    BrokerUnavailable,
    MalformedMessage,
    QueueMissing,
    SendError,
    StateUnavailable,
    StoreUnavailable,
    TopologyMismatch,
)
from taskmq.model.backoff import Backoff
from taskmq.model.history.logs import LOGS_TASK, RunLog, decode_logs
from taskmq.model.history.sent_runs import RUNS_TASK, RunReport, decode_runs
from taskmq.model.jobs.reports import Report, read_reports, with_readable_result
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.reports.applier import ReceivedReport, ReportApplier
from taskmq.scheduler.reports.journals import ReportedJournals
from taskmq.scheduler.reports.letters import ParkedReports, reports_of_letter
from taskmq.scheduler.reports.queue import ReportsQueue
from taskmq.scheduler.reports.refusals import judge
from taskmq.scheduler.status import SchedulerCounts

_log = logging.getLogger("taskmq.scheduler")

_BATCH: Final = 500
_INTERRUPTIONS: Final = (
    BrokerUnavailable,
    QueueMissing,
    TopologyMismatch,
    StateUnavailable,
    StoreUnavailable,
    SendError,
)
_PREFETCH: Final = 200
# A transaction costs about as much as 80 reports in it; larger batches form by themselves.
_FEW: Final = 200
_PACE: Final = 0.01
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class ReportConsumer:
    """A service that applies the reports of one partition.

    Args:
        queue: the partition's reports queue.
        applier: applies the reports to the store.
        journals: keeps progress and saved values.

    Attributes:
        name: name of the queue.
        applied: number of messages that were applied.
        has_caught_up: set once it has applied the reports that were in the queue when it began to consume.
    """

    def __init__(
        self,
        session: Session,
        store: JobStore,
        state: PartitionState,
        *,
        queue: ReportsQueue,
        applier: ReportApplier,
        journals: ReportedJournals,
        parked: ParkedReports,
        counts: SchedulerCounts,
    ) -> None:
        self.name = queue.name
        self.applied = 0
        self.has_caught_up = asyncio.Event()
        self._session = session
        self._store = store
        self._ledger = state.ledger
        self._queue = queue
        self._applier = applier
        self._history = store.history if isinstance(store, Remembering) else None
        self._lines: list[RunLog] = []
        self._sent_runs: list[RunReport] = []
        self._journals = journals
        self._parked = parked
        self._counts = counts
        self._waiting: deque[Delivery] = deque()
        self._in_work: list[Delivery] = []
        # The count of `applied` at which it has applied what was in the queue when it began to consume.
        self._start_mark = 0
        self._arrived = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._consumer: Consumer | None = None
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE)

    async def find_mark(self) -> int:
        """Return the count of `applied` at which every message published until now has been applied."""
        ready = await self._count_ready()
        is_idle = self._consumer is not None and self._consumer.healthy and not self._waiting and not self._in_work
        # Some may be here, or on their way, up to the limit of the subscription.
        return self.applied if is_idle and not ready else self.applied + ready + _PREFETCH

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._arrived.set()

    async def run(self) -> None:
        """Consume until `stop`; reports not applied by then are requeued."""
        try:
            while not self._is_stopping.is_set():
                try:
                    await self._begin()
                    await self._work()
                except _INTERRUPTIONS as error:
                    await self._requeue_all()
                    level = logging.DEBUG if isinstance(error, StoreUnavailable) else logging.WARNING
                    if not self._backoff.failures:
                        _log.log(level, "%s: reports wait: %s", self.name, error)
                    await pause(self._is_stopping, self._backoff.next())
        finally:
            await self._requeue_all()

    async def _begin(self) -> None:
        if self._backoff.failures:
            # A cheap check of the store, before anything is consumed again.
            await self._store.now_ms()
        await self._queue.declare()
        if not self.has_caught_up.is_set():
            self._start_mark = self.applied + await self._count_ready()
            self._note_applied(0)
        self._consumer = await self._session.broker.consume(
            [Subscription(self.name, _PREFETCH, is_punctual=True)], self._receive
        )

    async def _work(self) -> None:
        while not self._is_stopping.is_set():
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting and not self._is_stopping.is_set():
                received: list[ReceivedReport] = []
                began = asyncio.get_running_loop().time()
                while self._waiting and len(received) < _BATCH:
                    delivery = self._waiting.popleft()
                    self._in_work.append(delivery)
                    received += await self._read(delivery)
                # Before the reports of their runs, because lines of an ended run are not accepted.
                await self._keep_history()
                await self._journals.keep_progress()
                self._applier.has_advanced = False
                for start in range(0, len(received), _BATCH):
                    await self._applier.apply(received[start : start + _BATCH])
                has_answered = self._journals.is_saving
                await self._journals.save()
                for delivery in self._in_work:
                    delivery.ack()
                self._note_applied(len(self._in_work))
                self._in_work.clear()
                self._backoff.reset()
                is_lone_step = len(received) == 1 and self._applier.has_advanced
                if len(received) < _FEW and not has_answered and not is_lone_step:
                    await pause(self._is_stopping, max(began + _PACE - asyncio.get_running_loop().time(), 0))

    async def _count_ready(self) -> int:
        return sum(each.ready for each in await self._session.broker.stats([self.name]))

    def _note_applied(self, count: int) -> None:
        self.applied += count
        if self.applied >= self._start_mark:
            self.has_caught_up.set()

    def _receive(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self._arrived.set()

    async def _requeue_all(self) -> None:
        """Stop consuming, and requeue everything that is not acknowledged."""
        if (consumer := self._consumer) is not None:
            self._consumer = None
            await consumer.stop()
        # In reverse order, because each goes to the front of the queue.
        for delivery in reversed([*self._in_work, *self._waiting]):
            delivery.requeue()
        self._in_work.clear()
        self._waiting.clear()
        self._lines.clear()
        self._sent_runs.clear()
        self._journals.clear()
        self._arrived.clear()

    async def _keep_history(self) -> None:
        """Store the received log lines and runs of sent jobs."""
        lines, self._lines = self._lines, []
        runs, self._sent_runs = self._sent_runs, []
        if (history := self._history) is None:
            return
        if lines:
            self._counts.lines += await self._keep(history.logs.add(lines), "log lines")
        if runs:
            await self._keep(history.sent_jobs.add(runs), "runs of sent jobs")

    async def _keep(self, adding: Awaitable[int], what: str) -> int:
        """Return how many rows were added; none if the store cannot keep them."""
        try:
            return await adding
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a broken line or run must not hold up reports
            _log.error("%s: dropping %s that the store cannot keep", self.name, what, exc_info=error)
            return 0

    async def _read(self, delivery: Delivery) -> list[ReceivedReport]:
        if delivery.task in {LOGS_TASK, RUNS_TASK}:
            try:
                if delivery.task == LOGS_TASK:
                    self._lines += decode_logs(delivery.body)
                else:
                    self._sent_runs += decode_runs(delivery.body)
            except MalformedMessage as error:
                self._counts.reports["malformed"] += 1
                _log.warning("%s: %s", self.name, error)
            return []
        try:
            reports, unread = read_reports(delivery.body)
        except MalformedMessage as error:
            if dropped := reports_of_letter(delivery):
                return [ReceivedReport(report, True) for report in dropped if not self._goes_on_running(report)]
            self._counts.reports["malformed"] += 1
            _log.error("%s: parking message %s: %s", self.name, delivery.message_id, error)
            await self._parked.park(delivery, str(error))
            return []
        for one in unread:
            self._counts.reports["malformed"] += 1
            _log.error("%s: parking a report: %s", self.name, one.reason)
            await self._parked.park_part(one.body, one.reason)
        return [
            ReceivedReport(
                await judge(each, self._store) if each.kind == "refused" else with_readable_result(each),
                delivery.redelivered,
            )
            for each in self._collect(reports)
        ]

    def _collect(self, reports: Sequence[Report]) -> Iterator[Report]:
        """Yield the reports to apply; the others are counted, or kept for later steps."""
        for report in reports:
            if self._is_alive(report):
                continue
            if not self._journals.add(report):
                yield report
                continue
            if self._ledger.last_heard(report.id) is not None:
                now = asyncio.get_running_loop().time()
                self._ledger.hear(report.id, report.token, now=now, worker=report.worker)
            saving = report.saving
            if saving is not None and not saving.fence and not self._ledger.runs(report.id, report.token):
                # The next dispatch of a job carries its saved values if a run of it is known to have begun.
                yield msgspec.structs.replace(report, kind="started", saving=None)

    def _goes_on_running(self, dropped: Report) -> bool:
        """Whether a job whose message the broker dropped is running all the same."""
        if dropped.kind != "snoozed" or not self._ledger.runs(dropped.id, dropped.token):
            _log.warning("job %s: %s", dropped.id, dropped.error.message if dropped.error else "")
            return False
        # Most likely another copy. If it was the only one, the worker's absence is noticed soon.
        self._counts.reports["superseded"] += 1
        _log.warning("job %s: the broker dropped a message; the job is running and continues", dropped.id)
        return True

    def _is_alive(self, report: Report) -> bool:
        """Whether the report only says that a job is still running; updates the ledger if so."""
        if report.kind != "alive":
            return False
        now = asyncio.get_running_loop().time()
        is_ours = self._ledger.hear(report.id, report.token, now=now, worker=report.worker)
        self._counts.reports["accepted" if is_ours else "superseded"] += 1
        return True
