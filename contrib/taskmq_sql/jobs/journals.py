"""Progress and saved values of runs: tables `job_progress`, `saved_run` and `saved_value`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from taskmq.contracts.jobs.journals import HeldJob
from taskmq.contracts.stores.progress import ProgressRecord
from taskmq.model.history.journals import (
    NO_DETAILS,
    NO_HEAD,
    SaveAnswer,
    SavedContent,
    SavedValues,
    SaveHead,
    after_request,
)
from taskmq.model.history.signals import JobSignal, SignalEffect, place_signal
from taskmq.model.history.suspensions import ARGUMENTS, decode_arguments
from taskmq.model.jobs.reports import Report
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES, STATES, UNDERWAY_CODES
from taskmq_sql.jobs.held_jobs import FIRST_ID, held_jobs, try_versions
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.steps import JobId, Runner, Steps, ask, clock, insert, job_id

_HEARTBEAT: Final = "heartbeat"
_UNDERWAY: Final = ", ".join(map(str, UNDERWAY_CODES))
_LIVE: Final = f"select id, token from taskmq.job where id = any($1::uuid[]) and state in ({_UNDERWAY})"
# Locked in the order of their ids: no dispatch or end changes the token before the values are saved.
_LOCKED: Final = f"{_LIVE} order by id for update"
_REPORT: Final = """
insert into taskmq.job_progress (id, attempt, started, updated, state, done, total, note, details)
@rows(uuid, int, bigint, bigint, smallint, double precision, double precision, text, bytea)
on conflict (id) do update set
  attempt = excluded.attempt, started = excluded.started, updated = excluded.updated, state = excluded.state,
  done = excluded.done, total = excluded.total, note = excluded.note,
  details = coalesce(excluded.details, job_progress.details)
where job_progress.attempt < excluded.attempt or job_progress.started <= excluded.started"""
_PROGRESS: Final = """
select id, attempt, started, updated, state, done, total, note from taskmq.job_progress
where id = any($1::uuid[])"""
_DETAILS: Final = """
select id, details from taskmq.job_progress where id = any($1::uuid[]) and details is not null"""
_HEADS: Final = "select id, version, fence, run, number from taskmq.saved_run where id = any($1::uuid[])"
_PUT_HEADS: Final = """
insert into taskmq.saved_run (id, version, fence, run, number, touched)
@rows(uuid, int, bigint, text, int, bigint)
on conflict (id) do update set
  version = excluded.version, fence = excluded.fence, run = excluded.run, number = excluded.number,
  touched = excluded.touched"""
_DROP: Final = "delete from taskmq.saved_value where id = $1 and name = any($2::text[])"
_PUT_VALUES: Final = """
insert into taskmq.saved_value (id, name, is_reference, value) @rows(uuid, text, boolean, bytea)
on conflict (id, name) do update set is_reference = excluded.is_reference, value = excluded.value"""
_VALUES: Final = "select id, name, is_reference, value from taskmq.saved_value where id = any($1::uuid[])"
_LOCKED_JOB: Final = "select id from taskmq.job where id = any($1::uuid[]) for update"
_SIZES: Final = """
select name, case when is_reference then 0 else length(value) end from taskmq.saved_value
where id = any($1::uuid[])"""
_SIGNALS: Final = "select id, name from taskmq.saved_value where id = any($1::uuid[]) and name like 'signal %'"
_NO_JOB: Final = "id = any($1::uuid[]) and not exists (select 1 from taskmq.job j where j.id = {table}.id)"
_FORGET: Final = tuple(
    f"{change} where {_NO_JOB.format(table=table)}"
    for table, change in (
        ("saved_value", "delete from taskmq.saved_value"),
        ("saved_run", "delete from taskmq.saved_run"),
        ("job_progress", "update taskmq.job_progress set details = null"),
    )
)


class SqlJournals:
    """A `JournalStore` in the database's tables.

    Args:
        reports: writes what workers report.
        lookups: reads without waiting for lists.
    """

    def __init__(self, reports: Runner, lookups: Runner) -> None:
        self._reports = reports
        self._lookups = lookups

    async def report(self, reports: Sequence[Report]) -> None:
        last = {each.id: each for each in reports if is_job_id(each.id) and each.progress is not None}
        if last:
            await self._reports.write(partial(_report, list(last.values())), is_lasting=False)

    async def progress(self, ids: Sequence[str]) -> dict[str, ProgressRecord]:
        known = _job_ids(ids)
        rows = (await self._lookups.read(partial(ask, _PROGRESS, known))) if known else ()
        return {
            (found := job_id(row[0])): ProgressRecord(
                job_id=found,
                attempt=row[1],
                started=row[2],
                updated=row[3],
                state=STATES[row[4]],
                done=row[5],
                total=row[6],
                note=row[7],
            )
            for row in rows
        }

    async def save(self, reports: Sequence[Report]) -> list[SaveAnswer]:
        asked = [each for each in reports if is_job_id(each.id) and each.saving is not None]
        return (await self._reports.write(partial(_save, asked))) if asked else []

    async def values(self, ids: Sequence[str]) -> dict[str, SavedValues]:
        known = _job_ids(ids)
        return (await self._reports.read(partial(_values, known))) if known else {}

    async def signal(self, job_id: str, signal: JobSignal) -> SignalEffect | None:
        if not is_job_id(job_id):
            return None
        return await self._reports.write(partial(_signal, JobId(job_id), signal))

    async def held_jobs(self, *, after: str | None = None, limit: int = 500) -> list[HeldJob]:
        return await self._lookups.read(partial(held_jobs, FIRST_ID if after is None else JobId(after), limit))

    async def try_versions(self, job_id: str, versions: Collection[str]) -> None:
        await self._reports.write(partial(try_versions, [(job_id, each) for each in versions]))

    async def forget(self, ids: Sequence[str]) -> None:
        if known := _job_ids(ids):
            await self._reports.write(partial(_forget, known), is_lasting=False)


def _job_ids(ids: Sequence[str]) -> list[JobId]:
    return [JobId(each) for each in dict.fromkeys(ids) if is_job_id(each)]


def _report(reports: Sequence[Report]) -> Steps[None]:
    tokens = {job_id(found): token for found, token in (yield from ask(_LIVE, [JobId(each.id) for each in reports]))}
    rows: list[tuple[object, ...]] = []
    for each in sorted(reports, key=lambda report: report.id):
        progress = each.progress
        if progress is not None and tokens.get(each.id) == each.token:
            details = None if progress.details == NO_DETAILS else bytes(progress.details)
            started = progress.updated if each.started is None else each.started
            facts = (CODES[progress.state], progress.done, progress.total, storable(progress.note), details)
            rows.append((JobId(each.id), each.attempt, started, progress.updated, *facts))
    yield from insert(_REPORT, rows)


def _save(reports: Sequence[Report]) -> Steps[list[SaveAnswer]]:
    ids = [JobId(each) for each in sorted({report.id for report in reports})]
    tokens = {job_id(found): token for found, token in (yield from ask(_LOCKED, ids))}
    before = {job_id(row[0]): SaveHead(*row[1:]) for row in (yield from ask(_HEADS, ids))}
    signals = yield from _count_signals(reports, before)
    now = yield from clock()
    heads: dict[str, SaveHead] = {}
    values: dict[tuple[str, str], SavedContent] = {}
    dropped: dict[str, list[str]] = {}
    answers: list[SaveAnswer] = []
    for report in reports:
        request = report.saving
        assert request is not None
        head = heads.get(report.id) or before.get(report.id, NO_HEAD)
        after = None
        if tokens.get(report.id) == report.token:
            after = after_request(head, request, now=now, signals=signals[report.id])
        if after is not None and after is not head:
            heads[report.id] = after
            if request.fence:
                content = SavedContent(bytes(request.value), request.is_reference)
                values[report.id, storable(request.name)] = content
                if request.name == ARGUMENTS:
                    dropped[report.id] = drops = decode_arguments(content.value).drops
                    for name in drops:
                        values.pop((report.id, name), None)
        answers.append(SaveAnswer(request.run, request.number, 0 if after is None else after.fence))
    yield from insert(
        _PUT_HEADS,
        [(JobId(each), *msgspec.structs.astuple(heads[each]), now) for each in sorted(heads)],
    )
    for each, names in sorted(dropped.items()):
        yield from ask(_DROP, JobId(each), names)
    yield from insert(
        _PUT_VALUES,
        [(JobId(key[0]), key[1], values[key].is_reference, values[key].value) for key in sorted(values)],
    )
    return answers


def _count_signals(reports: Sequence[Report], heads: Mapping[str, SaveHead]) -> Steps[Counter[str]]:
    """Count the signals of the jobs whose runs may begin only if signals are all that they lack."""
    asked = {
        each.id
        for each in reports
        if each.saving is not None
        and not each.saving.fence
        and each.saving.base != heads.get(each.id, NO_HEAD).version
    }
    found: Counter[str] = Counter()
    if asked:
        rows = yield from ask(_SIGNALS, [JobId(each) for each in sorted(asked)])
        found.update(job_id(row[0]) for row in rows)
    return found


def _signal(job: JobId, signal: JobSignal) -> Steps[SignalEffect | None]:
    if not (yield from ask(_LOCKED_JOB, [job])):
        return None
    sizes: dict[str, int] = {row[0]: row[1] for row in (yield from ask(_SIZES, [job]))}
    effect = place_signal(sizes, signal)
    if effect.is_new:
        rows = yield from ask(_HEADS, [job])
        head = SaveHead(*rows[0][1:]) if rows else NO_HEAD
        after = msgspec.structs.replace(head, version=head.version + 1)
        yield from insert(_PUT_HEADS, [(job, *msgspec.structs.astuple(after), (yield from clock()))])
        yield from insert(_PUT_VALUES, [(job, effect.key, False, signal.value)])
    return effect


def _values(ids: Sequence[JobId]) -> Steps[dict[str, SavedValues]]:
    found: dict[str, SavedValues] = {}
    for row in (yield from ask(_HEADS, list(ids))):
        found[job_id(row[0])] = SavedValues(row[1], {})
    if found:
        for row in (yield from ask(_VALUES, [JobId(each) for each in found])):
            found[job_id(row[0])].values[row[1]] = SavedContent(bytes(row[3]), bool(row[2]))
    for row in (yield from ask(_DETAILS, list(ids))):
        saved = found.setdefault(job_id(row[0]), SavedValues(0, {}))
        saved.values[_HEARTBEAT] = SavedContent(bytes(row[1]))
    return found


def _forget(ids: Sequence[JobId]) -> Steps[None]:
    for statement in _FORGET:
        yield from ask(statement, list(ids))
