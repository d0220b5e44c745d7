"""Reports of workers about jobs of one partition: read from its queue, applied together, then acknowledged.

    deliveries -> up to 500 reports -> apply, one transaction -> results into the state -> ack; few: 10 ms later
                                       | raises: split in halves, until the faulty report is found: it is parked, and
                                       |         its job fails
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

A report that arrives twice, late or out of order changes nothing: the job's token decides, or the proof if the store
has forgotten the dispatch. A report with an invented token is counted, and logged at most once a minute. A report
about an unknown job is parked, because the database may have been restored and people have to notice.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from taskmq.client.session import Session
from taskmq.contracts.broker import Consumer, Delivery, Subscription
from taskmq.contracts.history import Remembering
from taskmq.contracts.jobs import AppliedReport, JobStore
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
from taskmq.model.jobs.reports import Report, after_report, goes_on, read_reports, with_readable_result
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.topology import PARKING
from taskmq.scheduler.dependents import DependentReleases, JobEnd, ReactionTable
from taskmq.scheduler.partition import Flight, PartitionState
from taskmq.scheduler.reports.inventions import Inventions
from taskmq.scheduler.reports.journals import ReportedJournals
from taskmq.scheduler.reports.letters import ParkedReports, reports_of_letter
from taskmq.scheduler.reports.queue import ReportsQueue
from taskmq.scheduler.reports.refusals import judge
from taskmq.scheduler.reports.results import AcceptedEnd, AcceptedResults
from taskmq.scheduler.reports.returned_jobs import ReturnedJobs
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.status import SchedulerCounts
from taskmq.scheduler.wakeups import Wakeups

_log = logging.getLogger("taskmq.scheduler")

_BATCH: Final = 500
# Reports that imply a run, even if its duration is unknown.
_RAN: Final = frozenset({"succeeded", "failed", "retry"})
# Reports that return a job, unless it has begun.
_RETURNS: Final = frozenset({"interrupted", "refused", "snoozed"})
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


class _Received(NamedTuple):
    """A report, and whether it may have been applied before."""

    report: Report
    is_again: bool


class ReportConsumer:
    """A service that applies the reports of one partition.

    Args:
        queue: the partition's reports queue.
        returned: decides about redelivered invitations.
        releases: releases the dependents of an ended job.
        runs: advances the run of an ended job.
        reactions: calls the reactions to an ended job.

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
        returned: ReturnedJobs,
        parked: ParkedReports,
        results: AcceptedResults,
        wakeups: Wakeups,
        releases: DependentReleases,
        runs: RunAdvances,
        reactions: ReactionTable,
        counts: SchedulerCounts,
    ) -> None:
        self.name = queue.name
        self.applied = 0
        self.has_caught_up = asyncio.Event()
        self._session = session
        self._store = store
        self._state = state
        self._ledger = state.ledger
        self._queue = queue
        self._returned = returned
        self._history = store.history if isinstance(store, Remembering) else None
        self._lines: list[RunLog] = []
        self._sent_runs: list[RunReport] = []
        self._journals = ReportedJournals(session.broker, store.journals)
        self._parked = parked
        self._results = results
        self._wakeups = wakeups
        self._releases = releases
        self._runs = runs
        self._reactions = reactions
        self._counts = counts
        self._inventions = Inventions(queue.name)
        self._waiting: deque[Delivery] = deque()
        self._in_work: list[Delivery] = []
        # The count of `applied` at which it has applied what was in the queue when it began to consume.
        self._start_mark = 0
        # Whether the last reports were about steps of runs.
        self._has_advanced = False
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
                received: list[_Received] = []
                began = asyncio.get_running_loop().time()
                while self._waiting and len(received) < _BATCH:
                    delivery = self._waiting.popleft()
                    self._in_work.append(delivery)
                    received += await self._read(delivery)
                # Before the reports of their runs, because lines of an ended run are not accepted.
                await self._keep_history()
                await self._journals.keep_progress()
                self._has_advanced = False
                for start in range(0, len(received), _BATCH):
                    await self._apply_in_turn(received[start : start + _BATCH])
                has_answered = self._journals.is_saving
                await self._journals.save()
                for delivery in self._in_work:
                    delivery.ack()
                self._note_applied(len(self._in_work))
                self._in_work.clear()
                self._backoff.reset()
                is_lone_step = len(received) == 1 and self._has_advanced
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

    async def _read(self, delivery: Delivery) -> list[_Received]:
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
                return [_Received(report, True) for report in dropped if not self._goes_on_running(report)]
            self._counts.reports["malformed"] += 1
            _log.error("%s: parking message %s: %s", self.name, delivery.message_id, error)
            await self._parked.park(delivery, str(error))
            return []
        for one in unread:
            self._counts.reports["malformed"] += 1
            _log.error("%s: parking a report: %s", self.name, one.reason)
            await self._parked.park_part(one.body, one.reason)
        return [
            _Received(
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

    async def _apply_in_turn(self, batch: Sequence[_Received]) -> None:
        """Apply the reports, and then decide about the invitations that were redelivered."""
        returned = [one.report for one in batch if one.report.redelivered]
        if not returned:
            await self._apply(batch)
            return
        await self._apply([one for one in batch if not one.report.redelivered])
        left = await self._returned.take(returned)
        self._counts.reports["redelivered"] += len(returned)
        await self._apply([_Received(report, is_again=False) for report in left])

    async def _apply(self, batch: Sequence[_Received]) -> None:
        """Apply the reports in one transaction; if that fails, apply those that can be applied."""
        if not batch:
            return
        began = asyncio.get_running_loop().time()
        try:
            applied = await self._store.dispatching.apply([one.report for one in batch], came_by=self.name)
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one bad report must not stop all the others
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._apply(batch[:middle])
                await self._apply(batch[middle:])
                return
            report = batch[0].report
            self._counts.reports["malformed"] += 1
            _log.error("job %s: parking its report, which the store cannot apply", report.id, exc_info=error)
            await self._parked.park_report(report, f"cannot be applied: {error}")
            await self._fail_unapplied(batch[0])
            return
        self._state.trips.record("record", asyncio.get_running_loop().time() - began)
        await self._handle_outcomes(batch, applied)

    async def _fail_unapplied(self, received: _Received) -> None:
        """Fail a job whose final report the store cannot apply: nothing else would end it."""
        report = received.report
        if goes_on(report.kind):
            return
        error = ErrorRecord(
            type_name="ReportParked",
            message=f"its run was reported as {report.kind}, but the store cannot apply that report: see {PARKING}",
            traceback="",
        )
        # With its own token and proof, so that an invented report cannot end a job this way.
        plain = Report(
            id=report.id, token=report.token, proof=report.proof, kind="failed", attempt=report.attempt, error=error
        )
        try:
            applied = await self._store.dispatching.apply([plain], came_by=self.name)
        except StoreUnavailable:
            raise
        except Exception as again:  # noqa: BLE001 - as above
            _log.error("job %s: the store cannot fail it either, leaving it as it is", report.id, exc_info=again)
        else:
            await self._handle_outcomes([_Received(plain, received.is_again)], applied)

    async def _handle_outcomes(self, batch: Sequence[_Received], applied: Sequence[AppliedReport]) -> None:
        ends: list[AcceptedEnd] = []
        # All of them before anything is awaited: meanwhile a job may be dispatched again.
        flights = self._update_flights([report for report, _ in batch])
        for (report, is_again), one, flight in zip(batch, applied, flights, strict=True):
            self._counts.reports[one.outcome] += 1
            if one.outcome in ("invented", "unknown"):
                await self._put_aside(report, one.outcome)
            elif one.state is not None and one.state in TERMINAL:
                # A report applied by a scheduler that died before it stored the result is superseded here.
                if one.outcome == "accepted" or (is_again and await self._has_ended_by(report, one.state)):
                    ends.append(AcceptedEnd(report, one.state, flight))
            elif one.outcome == "accepted" and not goes_on(report.kind):
                seconds = 0.0 if one.state is JobState.QUEUED else report.delay / 1000
                self._wakeups.wake_later(report.id, one.queue, seconds)
        if any(one.has_dependents for one in applied):
            self._releases.wake()
        if runs := {one.run for one in applied if one.run}:
            self._runs.advance_soon(runs)
            self._has_advanced = True
        if ends:
            await self._reactions.deliver(
                JobEnd(end.report.id, None if end.flight is None else end.flight.task, end.state) for end in ends
            )
            await self._journals.forget(ends)
            await self._results.put(ends)

    def _update_flights(self, reports: Sequence[Report]) -> list[Flight | None]:
        """Update the jobs in flight; return for each report the job that it removed from them."""
        now = asyncio.get_running_loop().time()
        for report in reports:
            if (report.limited or goes_on(report.kind)) and self._ledger.find(report.id, report.token) is not None:
                if goes_on(report.kind):
                    self._record_run(report, now)
                else:
                    self._note_limit(report, now)
        left = iter(
            self._state.leave_all(
                [(report.id, report.token, _run_seconds(report)) for report in reports if not goes_on(report.kind)]
            )
        )
        flights = [None if goes_on(report.kind) else next(left) for report in reports]
        ended: Counter[str] = Counter()
        for report, flight in zip(reports, flights, strict=True):
            if flight is None:
                continue
            ended[flight.queue] += 1
            if report.started is not None and report.kind in _RAN:
                self._state.short_tasks.record_run(flight.task, report.ran)
            elif report.started is None and report.kind in _RETURNS:
                self._state.short_tasks.record_return(flight.task, now=now)
        for queue, count in ended.items():
            self._state.count_ended(queue, count, now=now)
        return flights

    def _note_limit(self, report: Report, now: float) -> None:
        if report.kind == "snoozed":
            self._state.gates.turn_back(report.id, report.delay / 1000, now=now)
        elif report.kind == "interrupted":
            self._state.gates.note_late(now=now)

    async def _put_aside(self, report: Report, outcome: Literal["invented", "unknown"]) -> None:
        """Count an invented report, or park a report of an unknown job."""
        if outcome == "invented":
            self._inventions.note(report, now=asyncio.get_running_loop().time())
            return
        _log.error("job %s: parking its report, the store has no such job", report.id)
        await self._parked.park_report(report, "the store has no such job")

    async def _has_ended_by(self, report: Report, state: JobState) -> bool:
        """Whether the job ended by the same dispatch that is reported again."""
        if state is not after_report(report.kind, cancel_requested=False):
            return False
        record = await self._store.get(report.id)
        return record is not None and record.token == report.token

    def _record_run(self, report: Report, now: float) -> None:
        self._state.begin(report.id, now=now, worker=report.worker)
        if report.kind == "detached":
            self._ledger.detach(report.id, report.token, now=now, worker=report.worker)
        else:
            self._ledger.attach(report.id)


def _run_seconds(report: Report) -> float | None:
    """Return how long the run took; None if unknown, because its worker may have died."""
    if report.kind in _RAN and report.started is None:
        return None
    return report.ran / 1000
