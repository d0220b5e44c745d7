"""Application of reports: one statement per kind of consequence, all in one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from taskmq.contracts.jobs import AppliedReport, forgotten_end
from taskmq.model.jobs.proofs import ReportKeys
from taskmq.model.jobs.reports import (
    ENDS,
    Report,
    after_report,
    event_of,
    goes_on,
    interruption_of,
    is_unseen_end,
    kept_error,
    ran_again,
    restart_note,
)
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, is_invented
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import UNDERWAY, JobState
from taskmq.model.units import storable
from taskmq_sql.identity import note as note_audit
from taskmq_sql.jobs.codes import CODES, STATES, EventKind
from taskmq_sql.jobs.held_jobs import try_versions
from taskmq_sql.jobs.values import escape_error, is_job_id
from taskmq_sql.postgres.connections import Connection, Row, column_of
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.ended.endings import Ending, end
from taskmq_sql.postgres.notes import Note, note, worker_names
from taskmq_sql.postgres.records import error_columns
from taskmq_sql.postgres.statements.reports import AGAIN, EXISTING, FORGOTTEN, STARTED
from taskmq_sql.postgres.transactions import drive
from taskmq_sql.report_keys import read_keys

_TENANT: Final = "select name from taskmq.tenant where id = $1"
_ENDED: Final = """
select distinct on (h.id) h.id, h.state, h.version, h.queue, h.token from taskmq.job_history h
where h.id = any($1::uuid[]) order by h.id, h.ended desc"""

_LOCK_JOBS: Final = "select id from taskmq.job where id = any($1::uuid[]) order by id for update"
_SAVES: Final = "select id, version from taskmq.saved_run where id = any($1::uuid[])"


class _Step(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a report for its job.

    Attributes:
        started, worker: of the run known to the store before the report.
    """

    state: JobState
    queue: int
    version: int
    started: int | None = None
    worker: int | None = None
    is_accepted: bool = True
    is_forgotten: bool = False
    is_invented: bool = False
    has_dependents: bool = False
    run: str = ""


async def apply(database: Database, reports: Sequence[Report], came_by: str) -> list[AppliedReport]:
    """Implement `DispatchStore.apply`."""
    names = {worker: storable(worker) for worker in {report.worker for report in reports} if worker}
    numbers = await database.names.ids("worker", names.values())
    indexes = [index for index, report in enumerate(reports) if is_job_id(report.id)]
    applying = _Applying(reports, {worker: numbers[name] for worker, name in names.items()}, came_by)
    steps: dict[int, _Step] = {}
    if (
        indexes
        and len(turns := _turns(reports, indexes)) == 1
        and all(_is_end(reports[index]) and not reports[index].by_scheduler for index in indexes)
    ):
        # The ordinary case: a single statement, which is its own transaction.
        steps = await database.reports.run("statement", lambda connection: applying.end(connection, indexes))
        if restarted := applying.find_restarts(steps):
            await database.reports.run(
                "transaction", lambda connection: applying.note_restarts(connection, restarted)
            )
    else:
        turns = _turns(reports, indexes)
    if rest := [left for turn in turns if (left := [index for index in turn if index not in steps])]:
        steps |= await database.reports.run("transaction", lambda connection: applying.apply(connection, rest))
    for index, step in steps.items():
        if step.run:
            database.known_runs.note_end(step.run, reports[index])
    queues = await database.names.texts("queue", {step.queue for step in steps.values()})
    return [_to_applied_report(steps.get(index), queues) for index in range(len(reports))]


class _Applying:
    """A single call of `apply`; it may run again after a rollback, so it keeps no results."""

    def __init__(self, reports: Sequence[Report], workers: dict[str, int], came_by: str) -> None:
        self._reports = reports
        self._workers = workers
        self._came_by = came_by

    async def apply(self, connection: Connection, turns: Sequence[Sequence[int]]) -> dict[int, _Step]:
        """Apply the reports, turn by turn; return the outcomes for jobs that the store knows."""
        steps: dict[int, _Step] = {}
        notes: list[Note] = []
        for turn in turns:
            steps |= await self.end(connection, [index for index in turn if _is_end(self._reports[index])])
            steps |= await self._start(connection, [index for index in turn if goes_on(self._reports[index].kind)])
            steps |= await self._again(connection, [index for index in turn if _is_again(self._reports[index])])
            if left := [index for index in turn if index not in steps]:
                steps |= await self._settle(connection, left)
            await self._note_versions(connection, {index: steps[index] for index in turn if index in steps})
            notes += await self._notes(connection, {index: steps[index] for index in turn if index in steps})
        await note(connection, notes)
        return steps

    def find_restarts(self, steps: Mapping[int, _Step]) -> dict[int, _Step]:
        """Return the accepted reports whose job ran again although its earlier run never ended."""
        return {
            index: step
            for index, step in steps.items()
            if step.is_accepted and ran_again(self._reports[index], step.started)
        }

    async def note_restarts(self, connection: Connection, restarted: Mapping[int, _Step]) -> None:
        """Write the events of runs that never ended."""
        await note(connection, (await self._restarts(connection, restarted)).values())

    async def end(self, connection: Connection, indexes: Sequence[int]) -> dict[int, _Step]:
        """Apply the reports that end their jobs; return their outcomes."""
        if not indexes:
            return {}
        by_id = {self._reports[index].id: index for index in indexes}
        rows = await end(connection, [self._ending(self._reports[index]) for index in indexes])
        return {(index := by_id[str(row[0])]): _step_of(row, ENDS[self._reports[index].kind]) for row in rows}

    async def _start(self, connection: Connection, indexes: Sequence[int]) -> dict[int, _Step]:
        if not indexes:
            return {}
        found = sorted((self._reports[index] for index in indexes), key=_by_id)
        rows = await connection.fetch(
            STARTED,
            [report.id for report in found],
            [report.token for report in found],
            [self._worker(report) for report in found],
            [report.started for report in found],
        )
        by_id = {self._reports[index].id: index for index in indexes}
        return {
            by_id[str(row[0])]: _Step(JobState.RUNNING, row["queue"], row["version"], row["started"], row["worker"])
            for row in rows
        }

    async def _again(self, connection: Connection, indexes: Sequence[int]) -> dict[int, _Step]:
        if not indexes:
            return {}
        found = sorted((self._reports[index] for index in indexes), key=_by_id)
        if any(report.saves is not None for report in found):
            found = await _wake_signalled(connection, found)
        errors = [error_columns(_escape(kept_error(report))) for report in found]
        rows = await connection.fetch(
            AGAIN,
            [report.id for report in found],
            [report.token for report in found],
            [CODES[after_report(report.kind, cancel_requested=False)] for report in found],
            [self._worker(report) for report in found],
            [report.started for report in found],
            [_end_of(report) for report in found],
            [report.delay for report in found],
            *([each[column] for each in errors] for column in range(3)),
            [_is_outage(report) for report in found],
            column_of([report.processor for report in found]),
            column_of([report.peak_memory for report in found]),
            column_of([report.until for report in found]),
        )
        by_id = {self._reports[index].id: index for index in indexes}
        return {
            by_id[str(row[0])]: _Step(
                STATES[row["state"]], row["queue"], row["version"], row["started"], row["worker"]
            )
            for row in rows
        }

    async def _settle(self, connection: Connection, indexes: Sequence[int]) -> dict[int, _Step]:
        """Apply reports that did not match: the job ended, has another token, or is being cancelled."""
        wanted = sorted({self._reports[index].id for index in indexes})
        rows = {str(row["id"]): row for row in await connection.fetch(EXISTING, wanted)}
        cancelled = [
            index for index in indexes if _is_cancelled(self._reports[index], rows.get(self._reports[index].id))
        ]
        steps: dict[int, _Step] = {}
        if cancelled:
            endings = [self._ending(self._reports[index], JobState.CANCELLED) for index in cancelled]
            by_id = {self._reports[index].id: index for index in cancelled}
            for row in await end(connection, endings):
                steps[by_id[str(row[0])]] = _step_of(row, JobState.CANCELLED)
        live = rows
        if gone := [job_id for job_id in wanted if job_id not in live]:
            rows = live | {str(row["id"]): row for row in await connection.fetch(_ENDED, gone)}
        keys = await self._keys(connection, indexes, rows)
        forgotten = [
            index
            for index in indexes
            if (row := live.get(self._reports[index].id)) is not None
            and ends_forgotten_dispatch(self._reports[index], row["token"], keys, self._came_by)
        ]
        if forgotten:
            steps |= await self._end_forgotten(connection, forgotten, live)
        for index in indexes:
            row = rows.get(self._reports[index].id)
            if index not in steps and row is not None:
                steps[index] = _Step(
                    STATES[row["state"]],
                    row["queue"],
                    row["version"],
                    is_accepted=False,
                    is_forgotten=is_forgotten(self._reports[index].token, row["token"]),
                    is_invented=is_invented(self._reports[index], row["token"], keys, self._came_by),
                )
        return steps

    async def _keys(self, connection: Connection, indexes: Sequence[int], rows: Mapping[str, Row]) -> ReportKeys:
        """Read the store's keys if a report belongs to a dispatch that the store does not remember."""
        reports = [self._reports[index] for index in indexes]
        if any((row := rows.get(each.id)) is not None and is_forgotten(each.token, row["token"]) for each in reports):
            return ReportKeys(await drive(connection, read_keys()))
        return ReportKeys(())

    async def _end_forgotten(
        self, connection: Connection, indexes: Sequence[int], live: Mapping[str, Row]
    ) -> dict[int, _Step]:
        """End jobs by dispatches that the store does not remember, as if it did."""
        ids, tokens = zip(*((self._reports[index].id, self._reports[index].token) for index in indexes), strict=True)
        for statement in FORGOTTEN:
            await connection.execute(statement, *((ids, tokens) if "$2" in statement else (ids,)))
        ended = await self.end(connection, indexes)
        entries = [
            forgotten_end(report, step.state, await connection.fetchval(_TENANT, live[report.id]["tenant"]))
            for report, step in [(self._reports[index], step) for index, step in ended.items()]
        ]
        await drive(connection, note_audit(entries))
        return {index: msgspec.structs.replace(step, is_forgotten=True) for index, step in ended.items()}

    async def _note_versions(self, connection: Connection, steps: Mapping[int, _Step]) -> None:
        """Note the versions of the app that held jobs."""
        held = [
            (report.id, report.version)
            for index, step in steps.items()
            if (report := self._reports[index]).version and step.is_accepted and step.state is JobState.HELD
        ]
        await drive(connection, try_versions(held))

    async def _notes(self, connection: Connection, steps: Mapping[int, _Step]) -> list[Note]:
        restarts = await self._restarts(connection, self.find_restarts(steps))
        return [
            found
            for index, step in steps.items()
            for found in (restarts.get(index), self._note(index, step), self._note_end(index, step))
            if found is not None
        ]

    async def _restarts(self, connection: Connection, restarted: Mapping[int, _Step]) -> dict[int, Note]:
        if not restarted:
            return {}
        names = await worker_names(connection, (step.worker for step in restarted.values()))
        return {
            index: Note(
                (report := self._reports[index]).id,
                step.version,
                "interrupted",
                step.state,
                names.get(step.worker, ""),
                restart_note(report),
                step.started,
            )
            for index, step in restarted.items()
        }

    def _note(self, index: int, step: _Step) -> Note | None:
        report = self._reports[index]
        build = partial(Note, report.id, step.version, state=step.state, by=report.worker)
        if step.is_forgotten or not step.is_accepted:
            kind: EventKind = "unknown_attempt" if step.is_forgotten else "superseded"
            return build(kind=kind, text=report.kind, changes_nothing=not step.is_accepted)
        if (event := event_of(report)) is not None:
            return build(kind=event.kind, text=event.text)
        if (interruption := interruption_of(report)) is not None:
            return build(kind=interruption.kind, text=interruption.reason, started=report.started)
        return build(kind="detached") if report.kind == "detached" else None

    def _note_end(self, index: int, step: _Step) -> Note | None:
        """Return the event of an end that no worker knows."""
        report = self._reports[index]
        if not step.is_accepted or not is_unseen_end(report, step.state):
            return None
        text = "" if report.error is None else report.error.message
        return Note(report.id, step.version, "ended", step.state, text=text)

    def _ending(self, report: Report, state: JobState | None = None) -> Ending:
        state = state or ENDS[report.kind]
        is_success = state is JobState.SUCCEEDED
        return Ending(
            id=report.id,
            token=report.token,
            state=state,
            worker=self._worker(report),
            started=report.started,
            finished=_end_of(report),
            content_type=storable(report.content_type) if is_success else None,
            result=report.result if is_success else None,
            error=None if is_success else _escape(kept_error(report)),
            processor=report.processor,
            peak_memory=report.peak_memory,
        )

    def _worker(self, report: Report) -> int | None:
        return self._workers[report.worker] if report.worker else None


async def _wake_signalled(connection: Connection, reports: Sequence[Report]) -> list[Report]:
    """Return the reports; suspended jobs whose run does not know all signals are due now."""
    ids = [report.id for report in reports if report.saves is not None]
    # In two statements: the second one sees the signals of those who held the lock before.
    await connection.execute(_LOCK_JOBS, ids)
    saves = {str(row[0]): row[1] for row in await connection.fetch(_SAVES, ids)}
    return [
        msgspec.structs.replace(report, delay=0, until=None)
        if report.saves is not None and saves.get(report.id, 0) > report.saves
        else report
        for report in reports
    ]


def _step_of(row: Row, state: JobState) -> _Step:
    """Return the outcome for a job that has ended."""
    _, queue, version, has_dependents, started, worker, run = row
    return _Step(state, queue, version, started, worker, has_dependents=bool(has_dependents), run=str(run or ""))


def _is_outage(report: Report) -> bool:
    interruption = interruption_of(report)
    return interruption is not None and interruption.is_outage


def _turns(reports: Sequence[Report], indexes: Iterable[int]) -> list[list[int]]:
    """Group the indexes so that each turn has one report per job; reports of one job stay in order."""
    found: list[list[int]] = []
    seen: dict[str, int] = {}
    for index in indexes:
        number = seen[reports[index].id] = seen.get(reports[index].id, -1) + 1
        if number == len(found):
            found.append([])
        found[number].append(index)
    return found


def _is_end(report: Report) -> bool:
    return report.kind in ENDS


def _is_again(report: Report) -> bool:
    return not goes_on(report.kind) and not _is_end(report)


def _is_cancelled(report: Report, row: Row | None) -> bool:
    """Whether the report is accepted and its job must end as cancelled instead of running again."""
    return (
        row is not None
        and row["token"] == report.token
        and STATES[row["state"]] in UNDERWAY
        and row["cancel_requested"] is not None
        and _is_again(report)
    )


def _to_applied_report(step: _Step | None, queues: dict[int | None, str]) -> AppliedReport:
    if step is None:
        return AppliedReport("unknown")
    outcome: Literal["accepted", "superseded", "invented"] = "invented" if step.is_invented else "superseded"
    if step.is_accepted:
        outcome = "accepted"
    return AppliedReport(outcome, step.state, queues[step.queue], step.has_dependents, step.run)


def _end_of(report: Report) -> int | None:
    return None if report.started is None else report.started + report.ran


def _escape(error: ErrorRecord | None) -> ErrorRecord | None:
    return None if error is None else escape_error(error)


def _by_id(one: Report) -> str:
    return one.id
