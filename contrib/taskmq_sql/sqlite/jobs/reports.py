"""Application of workers' reports."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

from taskmq.contracts.jobs import AppliedReport, HistoryEntry, forgotten_end
from taskmq.model.jobs.proofs import ReportKeys
from taskmq.model.jobs.reports import (
    MOST_UNHEEDED,
    UNHEEDED,
    Report,
    after_report,
    event_of,
    goes_on,
    interruption_of,
    is_unseen_end,
    kept_error,
    next_due,
    ran_again,
    restart_note,
)
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, is_invented
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.identity import note
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.held_jobs import try_versions
from taskmq_sql.report_keys import read_keys
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import ENDED, UNDER_WAY, id_bytes, id_text
from taskmq_sql.sqlite.jobs.live_jobs import LiveJob, load, note_events, save
from taskmq_sql.sqlite.runner import drive

_ENDED: Final = "SELECT id, state, version, queue, token FROM job_history WHERE id IN (@values)"
_ATTEMPT: Final = """
    INSERT INTO attempt (id, attempt, started, ended, worker, error_type, error, traceback, processor_ms, peak_memory)
    VALUES @rows
"""
_UNHEEDED: Final = f"""
    SELECT id, count(*) FROM event WHERE id IN (@values) AND kind IN {tuple(sorted(UNHEEDED))} GROUP BY id
"""
_SAVES: Final = "SELECT version FROM saved_run WHERE id IN (@values)"
_UNKNOWN: Final = AppliedReport("unknown")
_AGAIN: Final = frozenset({JobState.RETRYING, JobState.SCHEDULED})


def apply(transaction: Transaction, reports: Sequence[tuple[Report, str]]) -> list[AppliedReport]:
    """Apply the reports, each with the queue it came by; return the outcomes in order."""
    return _Reporting(transaction, [(id_bytes(report.id), report, came_by) for report, came_by in reports]).run()


class _Reporting:
    """Reports of one transaction, and the jobs they concern."""

    def __init__(self, transaction: Transaction, reports: Sequence[tuple[bytes | None, Report, str]]) -> None:
        self._transaction = transaction
        self._names = transaction.names
        self._connection = transaction.connection
        self._now = transaction.now
        self._reports = reports
        self._live: dict[bytes, LiveJob] = {}
        self._ended: dict[bytes, tuple[int, int, int, int]] = {}
        self._events: list[tuple[bytes, HistoryEntry]] = []
        self._attempts: list[tuple[Any, ...]] = []
        self._known_keys: ReportKeys | None = None
        self._unheeded: Counter[bytes] | None = None

    def run(self) -> list[AppliedReport]:
        ids = list({job_id for job_id, *_ in self._reports if job_id is not None})
        self._live = load(self._transaction, ids)
        if gone := [job_id for job_id in ids if job_id not in self._live]:
            for job_id, *ended in select_each(self._connection, _ENDED, gone):
                self._ended[job_id] = (ended[0], ended[1], ended[2], ended[3])
        answers = [self._answer(job_id, report, came_by) for job_id, report, came_by in self._reports]
        save(self._transaction, self._live.values())
        run_each(self._connection, _ATTEMPT, self._attempts)
        note_events(self._transaction, self._events)
        return answers

    def _answer(self, job_id: bytes | None, report: Report, came_by: str) -> AppliedReport:
        if job_id is None:
            return _UNKNOWN
        if (job := self._live.get(job_id)) is None:
            if (ended := self._ended.get(job_id)) is None:
                return _UNKNOWN
            return self._supersede(job_id, report, ended, came_by)
        is_known = job.token == report.token and job.state in UNDER_WAY
        if not is_known and (job.state in ENDED or not self._ends_forgotten(report, job.token, came_by)):
            return self._supersede(job_id, report, (job.state, job.version, job.queue, job.token), came_by)
        if not is_known:
            # As if the store remembered the dispatch.
            job.state, job.token = CODES[JobState.DISPATCHED], report.token
        after = self._accept(job, report)
        if not is_known:
            self._note(job_id, after, job.version, "unknown_attempt", by=report.worker, note=report.kind)
            entry = forgotten_end(report, after, self._names.name(self._connection, job.tenant))
            drive(self._transaction, note([entry]))
        queue = self._names.name(self._connection, job.queue)
        if job.state not in ENDED:
            return AppliedReport("accepted", after, queue)
        run = "" if job.run is None else id_text(job.run)
        return AppliedReport("accepted", after, queue, bool(job.has_dependents), run)

    def _supersede(
        self, job_id: bytes, report: Report, known: tuple[int, int, int, int], came_by: str
    ) -> AppliedReport:
        state, version, queue, token = known
        is_made_up = False
        kind = "superseded"
        if is_forgotten(report.token, token):
            kind, is_made_up = "unknown_attempt", is_invented(report, token, self._keys(), came_by)
        if self._is_noted(job_id):
            self._note(job_id, STATES[state], version, kind, by=report.worker, note=report.kind)
        outcome: Literal["invented", "superseded"] = "invented" if is_made_up else "superseded"
        return AppliedReport(outcome, STATES[state], self._names.name(self._connection, queue))

    def _is_noted(self, job_id: bytes) -> bool:
        """Whether to keep an event for a report that changes nothing; each job has a maximum of those."""
        if self._unheeded is None:
            ids = list({each for each, *_ in self._reports if each is not None})
            self._unheeded = Counter(dict(select_each(self._connection, _UNHEEDED, ids)))
        self._unheeded[job_id] += 1
        return self._unheeded[job_id] <= MOST_UNHEEDED

    def _ends_forgotten(self, report: Report, token: int, came_by: str) -> bool:
        is_other = is_forgotten(report.token, token)
        return is_other and ends_forgotten_dispatch(report, token, self._keys(), came_by)

    def _keys(self) -> ReportKeys:
        """Keys of the store, read once and only if a report needs them."""
        if self._known_keys is None:
            self._known_keys = ReportKeys(drive(self._transaction, read_keys()))
        return self._known_keys

    def _accept(self, job: LiveJob, report: Report) -> JobState:
        after = after_report(report.kind, cancel_requested=job.cancel_requested is not None)
        job.step(after, now=self._now)
        if ran_again(report, job.started):
            self._note_restart(job, after, report)
        if report.worker:
            job.worker = self._names.id(self._connection, report.worker)
        if report.started is not None:
            job.started = report.started
            job.first_started = report.started if job.first_started is None else job.first_started
        if report.kind == "detached":
            self._note(job.id, after, job.version, "detached", by=report.worker, note="")
        if goes_on(report.kind):
            return after
        job.fail_with(kept_error(report))
        if job.state in ENDED:
            self._end(job, report, after)
        elif after in _AGAIN:
            saves = 0 if report.saves is None else self._count_saves(job.id)
            job.put_off(next_due(report, now=self._now, saves=saves))
        if after is JobState.RETRYING:
            self._keep_attempt(job, report)
            job.attempt += 1
            job.dispatched = None
            job.outages = None
        if (interruption := interruption_of(report)) is not None:
            self._note(
                job.id,
                after,
                job.version,
                interruption.kind,
                by=report.worker,
                note=interruption.reason,
                started=report.started,
            )
            job.outages = (job.outages or 0) + interruption.is_outage
        if (event := event_of(report)) is not None:
            self._note(job.id, after, job.version, event.kind, by=report.worker, note=event.text)
        self._note_version(after, report)
        if is_unseen_end(report, after):
            text = "" if report.error is None else report.error.message
            self._note(job.id, after, job.version, "ended", by="", note=text)
        return after

    def _note_version(self, after: JobState, report: Report) -> None:
        """Note the version of the app that held a job."""
        if after is JobState.HELD and report.version:
            drive(self._transaction, try_versions([(report.id, report.version)]))

    def _count_saves(self, job_id: bytes) -> int:
        """Return the number of saves of the job, signals included."""
        return next((version for (version,) in select_each(self._connection, _SAVES, [job_id])), 0)

    def _end(self, job: LiveJob, report: Report, after: JobState) -> None:
        job.finished = self._end_time(report)
        job.processor_ms, job.peak_memory = report.processor, report.peak_memory
        if after is JobState.SUCCEEDED:
            job.fail_with(None)
            job.content_type, job.result = storable(report.content_type), report.result
        elif job.cancel_requested is not None and report.kind != "failed" and kept_error(report) is None:
            job.give_reason(job.cancel_requested)

    def _note_restart(self, job: LiveJob, after: JobState, report: Report) -> None:
        worker = "" if job.worker is None else self._names.name(self._connection, job.worker)
        self._note(
            job.id, after, job.version, "interrupted", by=worker, note=restart_note(report), started=job.started
        )

    def _end_time(self, report: Report) -> int:
        return self._now if report.started is None else report.started + report.ran

    def _keep_attempt(self, job: LiveJob, report: Report) -> None:
        ended = self._end_time(report)
        worker = self._names.id(self._connection, report.worker) if report.worker else None
        self._attempts.append(
            (
                job.id,
                job.attempt,
                report.started,
                ended,
                worker,
                job.error_type,
                job.error,
                job.traceback,
                report.processor,
                report.peak_memory,
            )
        )

    def _note(
        self,
        job_id: bytes,
        state: JobState,
        version: int,
        kind: Any,
        *,
        by: str,
        note: str,
        started: int | None = None,
    ) -> None:
        event = HistoryEntry(version=version, at=self._now, kind=kind, state=state, by=by, note=note, started=started)
        self._events.append((job_id, event))
