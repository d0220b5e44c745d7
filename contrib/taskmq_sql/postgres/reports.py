"""Applying reports: grouped by what follows from them, each group one statement, all of them one transaction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from taskmq.contracts.jobs import AppliedReport, forgotten_end
from taskmq.model.jobs.proofs import ReportKeys
from taskmq.model.jobs.reports import (
    MOST_UNHEEDED,
    UNHEEDED,
    Report,
    after_report,
    goes_on,
    interruption_of,
    kept_error,
    ran_again,
    restart_note,
)
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, is_invented
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, UNDERWAY, JobState
from taskmq.model.units import storable
from taskmq_sql.identity import note as note_audit
from taskmq_sql.jobs.codes import CODES, EVENT_CODES, STATES, EventKind
from taskmq_sql.jobs.values import escape_error, is_job_id
from taskmq_sql.postgres.connections import Connection, Row, column_of
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.records import error_columns
from taskmq_sql.postgres.statements import AGAIN, END, EVENTS, EXISTING, FORGOTTEN, STARTED
from taskmq_sql.postgres.transactions import drive
from taskmq_sql.report_keys import read_keys

__all__ = ["Ending", "Note", "apply", "end", "note"]

_NOW: Final = "select taskmq.now_ms()"
_TENANT: Final = "select name from taskmq.tenant where id = $1"
_WORKERS: Final = "select id, name from taskmq.worker where id = any($1::int[])"
_ENDED: Final = """
select distinct on (h.id) h.id, h.state, h.version, h.queue, h.token from taskmq.job_history h
where h.id = any($1::uuid[]) order by h.id, h.ended desc"""

_UNHEEDED: Final = sorted(EVENT_CODES[kind] for kind in EVENT_CODES if kind in UNHEEDED)
_COUNTS: Final = """
select e.id, count(*) from taskmq.event e
where e.id = any($1::uuid[]) and e.kind = any($2::smallint[]) group by e.id"""


class Ending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a job under way ends; None where its row says it."""

    id: str
    token: int
    state: JobState
    worker: int | None = None
    started: int | None = None
    finished: int | None = None
    content_type: str | None = None
    result: bytes | None = None
    error: ErrorRecord | None = None


class Note(msgspec.Struct, frozen=True):
    """An event of a job's history."""

    id: str
    version: int
    kind: EventKind
    state: JobState
    by: str = ""
    text: str = ""
    started: int | None = None
    changes_nothing: bool = False


class _Step(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a report for its job.

    Attributes:
        started, worker: of the run that the store knew of before the report.
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


async def apply(database: Database, reports: Sequence[Report], came_by: str) -> list[AppliedReport]:
    """What `DispatchStore.apply` does."""
    workers = await database.names.ids("worker", {storable(report.worker) for report in reports if report.worker})
    places = [place for place, report in enumerate(reports) if is_job_id(report.id)]
    applying = _Applying(reports, workers, came_by)
    steps: dict[int, _Step] = {}
    if places and len(turns := _turns(reports, places)) == 1 and all(_is_end(reports[place]) for place in places):
        # The ordinary case: one statement is a transaction of its own.
        steps = await database.reports.run("statement", lambda connection: applying.end(connection, places))
        if restarted := applying.restarted(steps):
            await database.reports.run(
                "transaction", lambda connection: applying.note_restarts(connection, restarted)
            )
    else:
        turns = _turns(reports, places)
    if rest := [left for turn in turns if (left := [place for place in turn if place not in steps])]:
        steps |= await database.reports.run("transaction", lambda connection: applying.apply(connection, rest))
    queues = await database.names.texts("queue", {step.queue for step in steps.values()})
    return [_applied(steps.get(place), queues) for place in range(len(reports))]


class _Applying:
    """One call, which may begin again: it keeps nothing of what it has done."""

    def __init__(self, reports: Sequence[Report], workers: dict[str, int], came_by: str) -> None:
        self._reports = reports
        self._workers = workers
        self._came_by = came_by

    async def apply(self, connection: Connection, turns: Sequence[Sequence[int]]) -> dict[int, _Step]:
        """Let them count, turn by turn; what became of each that the store knows."""
        steps: dict[int, _Step] = {}
        notes: list[Note] = []
        for turn in turns:
            steps |= await self.end(connection, [place for place in turn if _is_end(self._reports[place])])
            steps |= await self._start(connection, [place for place in turn if goes_on(self._reports[place].kind)])
            steps |= await self._again(connection, [place for place in turn if _is_again(self._reports[place])])
            if left := [place for place in turn if place not in steps]:
                steps |= await self._settle(connection, left)
            notes += await self._notes(connection, {place: steps[place] for place in turn if place in steps})
        await note(connection, await _without_many_unheeded(connection, notes))
        return steps

    def restarted(self, steps: Mapping[int, _Step]) -> dict[int, _Step]:
        """Return those of jobs that ran again without an end of the run before."""
        return {
            place: step
            for place, step in steps.items()
            if step.is_accepted and ran_again(self._reports[place], step.started)
        }

    async def note_restarts(self, connection: Connection, restarted: Mapping[int, _Step]) -> None:
        """Write the events of runs without an end."""
        await note(connection, (await self._restarts(connection, restarted)).values())

    async def end(self, connection: Connection, places: Sequence[int]) -> dict[int, _Step]:
        """Those that ended their jobs."""
        if not places:
            return {}
        by_id = {self._reports[place].id: place for place in places}
        rows = await end(connection, [self._ending(self._reports[place]) for place in places])
        states = {place: after_report(self._reports[place].kind, cancel_requested=False) for place in places}
        return {(place := by_id[str(row[0])]): _step_of(row, states[place]) for row in rows}

    async def _start(self, connection: Connection, places: Sequence[int]) -> dict[int, _Step]:
        if not places:
            return {}
        found = sorted((self._reports[place] for place in places), key=_by_id)
        rows = await connection.fetch(
            STARTED,
            [report.id for report in found],
            [report.token for report in found],
            [self._worker(report) for report in found],
            [report.started for report in found],
        )
        by_id = {self._reports[place].id: place for place in places}
        return {
            by_id[str(row[0])]: _Step(JobState.RUNNING, row["queue"], row["version"], row["started"], row["worker"])
            for row in rows
        }

    async def _again(self, connection: Connection, places: Sequence[int]) -> dict[int, _Step]:
        if not places:
            return {}
        found = sorted((self._reports[place] for place in places), key=_by_id)
        errors = [error_columns(_escaped(kept_error(report))) for report in found]
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
        )
        by_id = {self._reports[place].id: place for place in places}
        return {
            by_id[str(row[0])]: _Step(
                STATES[row["state"]], row["queue"], row["version"], row["started"], row["worker"]
            )
            for row in rows
        }

    async def _settle(self, connection: Connection, places: Sequence[int]) -> dict[int, _Step]:
        """Those that found their jobs otherwise: ended, with another token, or asked to end."""
        wanted = sorted({self._reports[place].id for place in places})
        rows = {str(row["id"]): row for row in await connection.fetch(EXISTING, wanted)}
        cancelled = [
            place for place in places if _is_cancelled(self._reports[place], rows.get(self._reports[place].id))
        ]
        steps: dict[int, _Step] = {}
        if cancelled:
            endings = [self._ending(self._reports[place], JobState.CANCELLED) for place in cancelled]
            by_id = {self._reports[place].id: place for place in cancelled}
            for row in await end(connection, endings):
                steps[by_id[str(row[0])]] = _step_of(row, JobState.CANCELLED)
        live = rows
        if gone := [job_id for job_id in wanted if job_id not in live]:
            rows = live | {str(row["id"]): row for row in await connection.fetch(_ENDED, gone)}
        keys = await self._keys(connection, places, rows)
        forgotten = [
            place
            for place in places
            if (row := live.get(self._reports[place].id)) is not None
            and ends_forgotten_dispatch(self._reports[place], row["token"], keys, self._came_by)
        ]
        if forgotten:
            steps |= await self._end_forgotten(connection, forgotten, live)
        for place in places:
            row = rows.get(self._reports[place].id)
            if place not in steps and row is not None:
                steps[place] = _Step(
                    STATES[row["state"]],
                    row["queue"],
                    row["version"],
                    is_accepted=False,
                    is_forgotten=is_forgotten(self._reports[place].token, row["token"]),
                    is_invented=is_invented(self._reports[place], row["token"], keys, self._came_by),
                )
        return steps

    async def _keys(self, connection: Connection, places: Sequence[int], rows: Mapping[str, Row]) -> ReportKeys:
        """Read the store's keys if a report is of a dispatch that the store does not remember."""
        reports = [self._reports[place] for place in places]
        if any((row := rows.get(each.id)) is not None and is_forgotten(each.token, row["token"]) for each in reports):
            return ReportKeys(await drive(connection, read_keys()))
        return ReportKeys(())

    async def _end_forgotten(
        self, connection: Connection, places: Sequence[int], live: Mapping[str, Row]
    ) -> dict[int, _Step]:
        """End jobs by dispatches that are not written down here, as if they were."""
        ids, tokens = zip(*((self._reports[place].id, self._reports[place].token) for place in places), strict=True)
        for statement in FORGOTTEN:
            await connection.execute(statement, *((ids, tokens) if "$2" in statement else (ids,)))
        ended = await self.end(connection, places)
        entries = [
            forgotten_end(report, step.state, await connection.fetchval(_TENANT, live[report.id]["tenant"]))
            for report, step in [(self._reports[place], step) for place, step in ended.items()]
        ]
        await drive(connection, note_audit(entries))
        return {place: msgspec.structs.replace(step, is_forgotten=True) for place, step in ended.items()}

    async def _notes(self, connection: Connection, steps: Mapping[int, _Step]) -> list[Note]:
        restarts = await self._restarts(connection, self.restarted(steps))
        return [
            found
            for place, step in steps.items()
            for found in (restarts.get(place), self._note(place, step))
            if found is not None
        ]

    async def _restarts(self, connection: Connection, restarted: Mapping[int, _Step]) -> dict[int, Note]:
        if not restarted:
            return {}
        workers = list({step.worker for step in restarted.values() if step.worker is not None})
        names: dict[int | None, str] = dict(await connection.fetch(_WORKERS, workers))
        return {
            place: Note(
                (report := self._reports[place]).id,
                step.version,
                "interrupted",
                step.state,
                names.get(step.worker, ""),
                restart_note(report),
                step.started,
            )
            for place, step in restarted.items()
        }

    def _note(self, place: int, step: _Step) -> Note | None:
        report = self._reports[place]
        if step.is_forgotten or not step.is_accepted:
            kind: EventKind = "unknown_attempt" if step.is_forgotten else "superseded"
            return Note(
                report.id,
                step.version,
                kind,
                step.state,
                report.worker,
                report.kind,
                changes_nothing=not step.is_accepted,
            )
        if report.kind == "refused":
            text = report.error.message if report.error is not None else ""
            return Note(report.id, step.version, "refused", step.state, report.worker, text)
        if (interruption := interruption_of(report)) is not None:
            return Note(
                report.id,
                step.version,
                interruption.kind,
                step.state,
                report.worker,
                interruption.reason,
                report.started,
            )
        if report.kind == "detached":
            return Note(report.id, step.version, "detached", step.state, report.worker)
        return None

    def _ending(self, report: Report, state: JobState | None = None) -> Ending:
        state = state or after_report(report.kind, cancel_requested=False)
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
            error=None if is_success else _escaped(kept_error(report)),
        )

    def _worker(self, report: Report) -> int | None:
        return self._workers[storable(report.worker)] if report.worker else None


async def end(connection: Connection, endings: Sequence[Ending]) -> Sequence[Row]:
    """End those jobs that are still under way with these tokens: their ids, queues and versions."""
    endings = sorted(endings, key=_by_id)
    errors = zip(*(error_columns(ending.error) for ending in endings), strict=True)
    return await connection.fetch(
        END,
        [ending.id for ending in endings],
        [ending.token for ending in endings],
        [CODES[ending.state] for ending in endings],
        [ending.worker for ending in endings],
        [ending.started for ending in endings],
        [ending.finished for ending in endings],
        column_of([ending.content_type for ending in endings]),
        column_of([ending.result for ending in endings]),
        *map(column_of, errors),
    )


async def _without_many_unheeded(connection: Connection, notes: Sequence[Note]) -> list[Note]:
    """Leave those of reports that changed nothing out where their jobs have as many as are kept."""
    ids = sorted({each.id for each in notes if each.changes_nothing})
    if not ids:
        return list(notes)
    counts = {str(row[0]): row[1] for row in await connection.fetch(_COUNTS, ids, _UNHEEDED)}
    kept: list[Note] = []
    for each in notes:
        if each.changes_nothing:
            counts[each.id] = counts.get(each.id, 0) + 1
        if not each.changes_nothing or counts[each.id] <= MOST_UNHEEDED:
            kept.append(each)
    return kept


async def note(connection: Connection, found: Iterable[Note]) -> None:
    """Write the events down."""
    if notes := list(found):
        await connection.execute(
            EVENTS,
            [each.id for each in notes],
            [each.version for each in notes],
            [EVENT_CODES[each.kind] for each in notes],
            [CODES[each.state] for each in notes],
            [storable(each.by) for each in notes],
            [storable(each.text) for each in notes],
            [each.started for each in notes],
        )


def _step_of(row: Row, state: JobState) -> _Step:
    """Return the step of a job that has ended."""
    return _Step(state, row[1], row[2], row[4], row[5], has_dependents=bool(row[3]))


def _is_outage(report: Report) -> bool:
    interruption = interruption_of(report)
    return interruption is not None and interruption.is_outage


def _turns(reports: Sequence[Report], places: Iterable[int]) -> list[list[int]]:
    """The places in turns of which each has one report of a job: several of one job count in their order."""
    found: list[list[int]] = []
    seen: dict[str, int] = {}
    for place in places:
        number = seen[reports[place].id] = seen.get(reports[place].id, -1) + 1
        if number == len(found):
            found.append([])
        found[number].append(place)
    return found


def _is_end(report: Report) -> bool:
    return after_report(report.kind, cancel_requested=False) in TERMINAL


def _is_again(report: Report) -> bool:
    return not goes_on(report.kind) and not _is_end(report)


def _is_cancelled(report: Report, row: Row | None) -> bool:
    """Whether the report counts, and its job is not to run again."""
    return (
        row is not None
        and row["token"] == report.token
        and STATES[row["state"]] in UNDERWAY
        and row["cancel_requested"] is not None
        and _is_again(report)
    )


def _applied(step: _Step | None, queues: dict[int | None, str]) -> AppliedReport:
    if step is None:
        return AppliedReport("unknown")
    outcome: Literal["accepted", "superseded", "invented"] = "invented" if step.is_invented else "superseded"
    if step.is_accepted:
        outcome = "accepted"
    return AppliedReport(outcome, step.state, queues[step.queue], step.has_dependents)


def _end_of(report: Report) -> int | None:
    return None if report.started is None else report.started + report.ran


def _escaped(error: ErrorRecord | None) -> ErrorRecord | None:
    return None if error is None else escape_error(error)


def _by_id(one: Report | Ending) -> str:
    return one.id
