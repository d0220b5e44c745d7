"""Application of reports to the store, in one transaction, and what follows from it.

    apply, one transaction -> jobs in flight -> dependents, runs, reactions -> results into the state
    | raises: split in halves, until the faulty report is found: it is parked, and its job fails

A report that arrives twice, late or out of order changes nothing: the job's token decides, or the proof if the store
has forgotten the dispatch. A report with an invented token is counted, and logged at most once a minute. A report
about an unknown job is parked, because the database may have been restored and people have to notice.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from taskmq.contracts.jobs import AppliedReport, JobStore
from taskmq.errors import (
    StoreUnavailable,
)
from taskmq.model.jobs.reports import Report, after_report, goes_on
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.topology import PARKING
from taskmq.scheduler.dependents import DependentReleases, JobEnd, ReactionTable
from taskmq.scheduler.partition import Flight, PartitionState
from taskmq.scheduler.reports.inventions import Inventions
from taskmq.scheduler.reports.journals import ReportedJournals
from taskmq.scheduler.reports.letters import ParkedReports
from taskmq.scheduler.reports.results import AcceptedEnd, AcceptedResults
from taskmq.scheduler.reports.returned_jobs import ReturnedJobs
from taskmq.scheduler.runs import RunAdvances
from taskmq.scheduler.status import SchedulerCounts
from taskmq.scheduler.wakeups import Wakeups

_log = logging.getLogger("taskmq.scheduler")

# Reports that imply a run, even if its duration is unknown.
_RAN: Final = frozenset({"succeeded", "failed", "retry"})
# Reports that return a job, unless it has begun.
_RETURNS: Final = frozenset({"interrupted", "refused", "snoozed"})


class ReceivedReport(NamedTuple):
    """A report, and whether it may have been applied before."""

    report: Report
    is_again: bool


class ReportApplier:
    """Applies the reports of one partition.

    Args:
        name: name of the queue that the reports came from.
        returned: decides about redelivered invitations.
        releases: releases the dependents of an ended job.
        runs: advances the run of an ended job.
        reactions: calls the reactions to an ended job.

    Attributes:
        has_advanced: whether reports were about steps of runs; the caller resets it.
    """

    def __init__(
        self,
        store: JobStore,
        state: PartitionState,
        *,
        name: str,
        returned: ReturnedJobs,
        parked: ParkedReports,
        journals: ReportedJournals,
        results: AcceptedResults,
        wakeups: Wakeups,
        releases: DependentReleases,
        runs: RunAdvances,
        reactions: ReactionTable,
        counts: SchedulerCounts,
    ) -> None:
        self.has_advanced = False
        self._name = name
        self._store = store
        self._state = state
        self._ledger = state.ledger
        self._returned = returned
        self._parked = parked
        self._journals = journals
        self._results = results
        self._wakeups = wakeups
        self._releases = releases
        self._runs = runs
        self._reactions = reactions
        self._counts = counts
        self._inventions = Inventions(name)

    async def apply(self, batch: Sequence[ReceivedReport]) -> None:
        """Apply the reports, and then decide about the invitations that were redelivered.

        Raises:
            StoreUnavailable, StateUnavailable: some may not be applied; repeat the call.
        """
        returned = [one.report for one in batch if one.report.redelivered]
        if not returned:
            await self._apply(batch)
            return
        await self._apply([one for one in batch if not one.report.redelivered])
        left = await self._returned.take(returned)
        self._counts.reports["redelivered"] += len(returned)
        await self._apply([ReceivedReport(report, is_again=False) for report in left])

    async def _apply(self, batch: Sequence[ReceivedReport]) -> None:
        """Apply the reports in one transaction; if that fails, apply those that can be applied."""
        if not batch:
            return
        began = asyncio.get_running_loop().time()
        try:
            applied = await self._store.dispatching.apply([one.report for one in batch], came_by=self._name)
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

    async def _fail_unapplied(self, received: ReceivedReport) -> None:
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
            applied = await self._store.dispatching.apply([plain], came_by=self._name)
        except StoreUnavailable:
            raise
        except Exception as again:  # noqa: BLE001 - as above
            _log.error("job %s: the store cannot fail it either, leaving it as it is", report.id, exc_info=again)
        else:
            await self._handle_outcomes([ReceivedReport(plain, received.is_again)], applied)

    async def _handle_outcomes(self, batch: Sequence[ReceivedReport], applied: Sequence[AppliedReport]) -> None:
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
            self.has_advanced = True
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
