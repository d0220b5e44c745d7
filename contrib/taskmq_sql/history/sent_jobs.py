"""Records of sent jobs in the table `sent_job`: one row per job, with its last run in columns."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from taskmq.contracts.history import sent_record
from taskmq.contracts.jobs import JobPage
from taskmq.model.envelope import new_job_id
from taskmq.model.history.sent_runs import (
    RecordedJob,
    RecordedRun,
    RunReport,
    SentJobFacts,
    add_run,
    first_record,
    record_id,
)
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.keys import split_tenant_key
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.history.logs import log_key
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.values import LAST_CHARACTER, can_be_kept, escape_error, is_job_id
from taskmq_sql.steps import JobId, Row, Runner, Steps, ask, first, insert, job_id, lock

_NAMES: Final = (
    "id, name, key, tenant, task, queue, priority, sent, version, state, attempt, worker, started, ended, due, "
    "error_type, error_message, traceback, processor_ms, earlier"
)
_CHANGED: Final = _NAMES.split(", ")[8:]
_PUT: Final = f"""
insert into taskmq.sent_job ({_NAMES}) @rows(uuid, text, text, text, text, text, smallint, bigint, int, smallint, int,
text, bigint, bigint, bigint, text, text, text, int, text)
on conflict (id) do update set {", ".join(f"{name} = excluded.{name}" for name in _CHANGED)}"""
_FIND: Final = f"select {_NAMES} from taskmq.sent_job where id = any($1::uuid[])"
_FIND_KEY: Final = f"select {_NAMES} from taskmq.sent_job where key = $1 and tenant = $2 order by id desc limit 1"
_LOCK: Final = "sent jobs"
_TOGETHER: Final = 500
# Rows that a page or a count reads at most.
_BOUND: Final = 20_000
_SUCCEEDED: Final = CODES[JobState.SUCCEEDED]
_FIRST_RANDOM: Final = bytes(10)
_FINAL: Final = ", ".join(str(CODES[state]) for state in JobState if state.is_final)

_earlier_encoder: Final = msgspec.json.Encoder()
_earlier_decoder: Final = msgspec.json.Decoder(tuple[RecordedRun, ...])


class SqlSentJobs:
    """A `SentJobStore` in the database's tables.

    Args:
        bound: rows that a page or a count reads at most.
    """

    def __init__(self, runner: Runner, *, bound: int = _BOUND) -> None:
        self._runner = runner
        self._bound = bound

    async def add(self, reports: Sequence[RunReport]) -> int:
        changed = 0
        for begin in range(0, len(reports), _TOGETHER):
            part = [_make_storable(each) for each in reports[begin : begin + _TOGETHER]]
            changed += await self._runner.write(partial(_add, reports=part))
        return changed

    async def find(self, name: str) -> RecordedJob | None:
        return await self._runner.read(partial(_find, name=name)) if can_be_kept(name) else None

    async def page(self, which: JobFilter, *, after: str | None = None, limit: int = 50) -> JobPage:
        if limit <= 0 or _is_impossible(which):
            return JobPage([], None)
        return await self._runner.read(partial(_page, which=which, after=after, limit=limit, bound=self._bound))

    async def count(self, which: JobFilter, *, cap: int = 10_000) -> int:
        if _is_impossible(which):
            return 0
        return await self._runner.read(partial(_count, which=which, cap=cap, bound=max(self._bound, cap + 1)))

    async def forget_ended(self, ids: Sequence[str]) -> int:
        return await self._runner.write(partial(_forget_ended, ids=[one for one in ids if is_job_id(one)]))

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        return await self._runner.write(partial(_forget, before=before, limit=limit))


def _add(*, reports: Sequence[RunReport]) -> Steps[int]:
    # Read, merge, write: without the lock, concurrent calls would lose each other's runs.
    yield from lock([_LOCK])
    ids = sorted({record_id(report.job) for report in reports})
    before = {record.id: record for record in map(_record, (yield from ask(_FIND, [JobId(each) for each in ids])))}
    records = dict(before)
    for report in reports:
        known = records.get(found := record_id(report.job))
        records[found] = first_record(report) if known is None else add_run(known, report)
    changed = [record for found, record in sorted(records.items()) if record is not before.get(found)]
    yield from insert(_PUT, [_row(record) for record in changed])
    return len(changed)


def _find(*, name: str) -> Steps[RecordedJob | None]:
    if is_job_id(name):
        for row in (yield from ask(_FIND, [JobId(name)])):
            return _record(row)
    tenant, key = split_tenant_key(name)
    found = yield from first(_FIND_KEY, key, tenant)
    return None if found is None else _record(found)


def _page(*, which: JobFilter, after: str | None, limit: int, bound: int) -> Steps[JobPage]:
    scan, values = _scan(which, after)
    last = yield from first(f"select id {scan} limit 1 offset ${len(values) + 1}", *values, bound - 1)
    text, args = _matching(which, scan, values, bound=bound, limit=limit + 1)
    rows = yield from ask(text, *args)
    jobs = [sent_record(_record(row)) for row in rows[:limit]]
    if len(rows) > limit:
        return JobPage(jobs, jobs[-1].id)
    return JobPage(jobs, None if last is None else job_id(last[0]), is_bounded=last is not None)


def _count(*, which: JobFilter, cap: int, bound: int) -> Steps[int]:
    scan, values = _scan(which, None)
    last = yield from first(f"select id {scan} limit 1 offset ${len(values) + 1}", *values, bound - 1)
    text, args = _matching(which, scan, values, bound=bound, limit=cap + 1)
    ((count,),) = yield from ask(f"select count(*) from ({text}) found", *args)
    return int(count) if last is None else cap + 1


def _matching(
    which: JobFilter, scan: str, values: Sequence[object], *, bound: int, limit: int
) -> tuple[str, list[object]]:
    """Return a statement for the newest matching rows among the first ones of a scan, and its values."""
    found = Conditions()
    found.args += values
    newest = f"(select * {scan} limit {found.add_value(bound)}) t"
    _add_conditions(found, which)
    text = f"select {_NAMES} from {newest} {found.where} order by id desc limit {found.add_value(limit)}"
    return text, found.args


def _scan(which: JobFilter, after: str | None) -> tuple[str, list[object]]:
    """Return the range of an index, the newest job first, that contains all matching jobs."""
    indexed = Conditions()
    states = _codes(which)
    if which.ids:
        indexed.demand("id in ({})", *(JobId(each) for each in which.ids if is_job_id(each)))
    elif len(states) == 1 and _SUCCEEDED not in states:
        # The condition of the partial index.
        indexed.demand(f"state <> {_SUCCEEDED} and state = {{}}", *states)
    indexed.equal("tenant", None if which.tenant is None else storable(which.tenant))
    for sign, instant in ((">=", which.submitted_from), ("<", which.submitted_before)):
        if instant is not None:
            indexed.demand(f"id {sign} {{}}", JobId(new_job_id(instant, _FIRST_RANDOM)))
    if after is not None:
        indexed.demand("id < {}", JobId(after))
    return f"from taskmq.sent_job {indexed.where} order by id desc", indexed.args


def _add_conditions(found: Conditions, which: JobFilter) -> None:
    """Add the conditions that are checked row by row."""
    listed = (
        ("state", _codes(which) if which.states else ()),
        ("task", which.tasks),
        ("queue", which.queues),
        ("key", which.keys),
        ("error_type", which.errors),
    )
    for column, values in listed:
        if values:
            kept = (storable(each) if isinstance(each, str) else each for each in values)
            found.demand(f"{column} in ({{}})", *kept)
    if which.task_prefix:
        prefix = storable(which.task_prefix)
        found.demand("task >= {}", prefix)
        found.demand("task < {}", prefix + LAST_CHARACTER)
    for condition, bound in (
        ("coalesce(due, sent) >= {}", which.due_from),
        ("coalesce(due, sent) < {}", which.due_before),
        ("attempt >= {}", which.min_attempt),
        ("ended - started >= {}", which.min_ran),
        ("started - sent >= {}", which.min_waited),
    ):
        if bound is not None:
            found.demand(condition, bound)
    for condition, bound in (("ended >= {}", which.finished_from), ("ended < {}", which.finished_before)):
        if bound is not None:
            found.demand(f"state in ({_FINAL}) and {condition}", bound)


def _is_impossible(which: JobFilter) -> bool:
    """Return whether no sent job can match."""
    has_id = not which.ids or any(map(is_job_id, which.ids))
    return not has_id or bool(which.labels) or which.retried == "yes" or bool(which.states and not _codes(which))


def _codes(which: JobFilter) -> list[int]:
    return sorted(CODES[state] for state in which.states if state in CODES)


def _forget_ended(*, ids: Sequence[str]) -> Steps[int]:
    gone = yield from ask(
        f"delete from taskmq.sent_job where id = any($1::uuid[]) and state in ({_FINAL}) returning id, name",
        [JobId(one) for one in ids],
    )
    yield from ask(
        "delete from taskmq.job_log where job = any($1::text[])", [log_key(job_id(row[0])) for row in gone]
    )
    yield from ask("delete from taskmq.run_failure where job = any($1::text[])", [row[1] for row in gone])
    return len(gone)


def _forget(*, before: int, limit: int) -> Steps[int]:
    rows = yield from ask(
        "delete from taskmq.sent_job where id in ("
        "select id from taskmq.sent_job where id < $1 order by id limit $2) returning id",
        JobId(new_job_id(before, _FIRST_RANDOM)),
        limit,
    )
    return len(rows)


def _make_storable(report: RunReport) -> RunReport:
    """Return the report with texts that a database can represent."""
    job, run = report.job, report.run
    names = {name: storable(getattr(job, name)) for name in ("name", "task", "queue", "tenant")}
    error = None if run.error is None else escape_error(run.error)
    return RunReport(
        msgspec.structs.replace(job, **names),
        msgspec.structs.replace(run, worker=storable(run.worker), error=error),
    )


def _row(record: RecordedJob) -> tuple[object, ...]:
    job, last, error = record.job, record.last, record.last.error
    return (
        JobId(record.id),
        job.name,
        record.key,
        job.tenant,
        job.task,
        job.queue,
        job.priority,
        job.sent,
        record.version,
        CODES[last.state],
        last.attempt,
        last.worker,
        last.started,
        last.ended,
        last.due,
        None if error is None else error.type_name,
        None if error is None else error.message,
        None if error is None else error.traceback,
        last.processor_ms,
        _earlier_encoder.encode(record.earlier).decode() if record.earlier else None,
    )


def _record(row: Row) -> RecordedJob:
    values: dict[str, Any] = dict(zip(_NAMES.split(", "), row, strict=True))
    error = values["error_type"]
    return RecordedJob(
        id=job_id(values["id"]),
        key=values["key"],
        job=SentJobFacts(**{name: values[name] for name in ("name", "task", "queue", "tenant", "priority", "sent")}),
        version=values["version"],
        last=RecordedRun(
            **{name: values[name] for name in ("attempt", "worker", "started", "ended", "due", "processor_ms")},
            state=STATES[values["state"]],
            error=None
            if error is None
            else ErrorRecord(
                type_name=error, message=values["error_message"] or "", traceback=values["traceback"] or ""
            ),
        ),
        earlier=() if values["earlier"] is None else _earlier_decoder.decode(values["earlier"]),
    )
