"""Log lines in the table `job_log`."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from taskmq.model.history.logs import LogFilter, LogPage, RunLog, StoredLine, standard_level
from taskmq.model.history.sent_runs import SentJobFacts, record_id
from taskmq.model.units import storable
from taskmq_sql.history.conditions import Conditions, contains
from taskmq_sql.jobs.codes import UNDERWAY_CODES
from taskmq_sql.jobs.values import can_be_kept, is_job_id
from taskmq_sql.steps import JobId, Row, Runner, Steps, ask, first, insert, job_id, names_of

_COLUMNS: Final = "number, at, level, logger, message, job, attempt, worker, tenant, task, queue, run, step, child"
_INSERTED: Final = (
    "job, token, line, at, level, logger, message, attempt, worker, tenant, task, queue, run, step, child"
)
_ADD: Final = f"""
insert into taskmq.job_log ({_INSERTED})
@rows(text, bigint, int, bigint, smallint, text, text, int, text, text, text, text, uuid, text, int)
on conflict (job, token, line) do nothing returning number"""
# Before the id of a sent job, so that its lines are no stored job's.
_SENT: Final = "sent:"
_SEARCH_LINES: Final = 20_000
_LIVE: Final = f"""
select id, token, tenant, task, queue, run, step, child from taskmq.job
where id = any($1::uuid[]) and state in ({", ".join(map(str, UNDERWAY_CODES))})"""
# SQLite's rule on both databases: only ASCII letters match in either case.
_LOWERED: Final = 'lower(message collate "C")'


class _Run(NamedTuple):
    job: str
    token: int
    tenant: str
    task: str
    queue: str
    of_run: tuple[Any, str | None, int | None]


class SqlLogs:
    """A `LogStore` in the database's tables.

    Args:
        search_lines: lines that one text search reads at most.
    """

    def __init__(self, runner: Runner, *, search_lines: int = _SEARCH_LINES) -> None:
        self._runner = runner
        self._search_lines = search_lines

    async def add(self, logs: Sequence[RunLog]) -> int:
        kept = [log for log in logs if log.lines and (log.sent is not None or is_job_id(log.id))]
        if not kept:
            return 0
        return await self._runner.write(partial(_add, logs=kept))

    async def page(
        self, which: LogFilter, *, after: int | None = None, limit: int = 50, oldest_first: bool = False
    ) -> LogPage:
        texts = (which.job or "", which.tenant or "", which.task or "", which.step)
        if not all(map(can_be_kept, texts)) or not (which.run is None or is_job_id(which.run)):
            return LogPage([], after if oldest_first else None)
        work = partial(
            _page,
            which=which,
            after=after,
            limit=limit,
            oldest_first=oldest_first,
            search_lines=self._search_lines,
        )
        # A reader that follows one job or run has seen its end, and so must see its last lines.
        is_search = which.job is None and which.run is None
        return await (self._runner.show(work) if is_search else self._runner.read(work))

    async def forget(self, *, level: int, before: int, limit: int = 1_000) -> int:
        return await self._runner.write(partial(_forget, level=level, before=before, limit=limit))


def _add(*, logs: Sequence[RunLog]) -> Steps[int]:
    stored = sorted({log.id for log in logs if log.sent is None})
    rows = yield from ask(_LIVE, [JobId(each) for each in stored])
    tenants = yield from names_of("tenant", {row[2] for row in rows})
    tasks = yield from names_of("task", {row[3] for row in rows})
    queues = yield from names_of("queue", {row[4] for row in rows})
    runs = {
        job_id(job): _Run(job_id(job), token, tenants[tenant], tasks[task], queues[queue], (run, step, child))
        for job, token, tenant, task, queue, run, step, child in rows
    }
    lines = [
        row
        for log in logs
        if (run := runs.get(log.id) if log.sent is None else _sent_run(log, log.sent)) is not None
        and run.token == log.token
        for row in _rows(log, run)
    ]
    return len((yield from insert(_ADD, lines)))


def log_key(sent_job: str) -> str:
    """Return the key of a sent job's lines, by its id."""
    return f"{_SENT}{sent_job}"


def _sent_run(log: RunLog, job: SentJobFacts) -> _Run:
    """Return the run of a sent job, whose lines no token protects: they belong to no stored job's log."""
    return _Run(
        log_key(record_id(job)),
        log.token,
        storable(job.tenant),
        storable(job.task),
        storable(job.queue),
        (None, None, None),
    )


def _rows(log: RunLog, run: _Run) -> Iterator[tuple[object, ...]]:
    for line, each in enumerate(log.lines, log.first):
        yield (
            run.job,
            log.token,
            line,
            each.at,
            standard_level(each.level),
            each.logger,
            each.message,
            log.attempt,
            log.worker,
            run.tenant,
            run.task,
            run.queue,
            *run.of_run,
        )


def _page(
    *,
    which: LogFilter,
    after: int | None,
    limit: int,
    oldest_first: bool,
    search_lines: int,
) -> Steps[LogPage]:
    indexed = Conditions()
    for column, value in (
        ("job", log_key(which.job) if which.job is not None and which.is_sent else which.job),
        ("tenant", which.tenant),
        ("task", which.task),
        ("attempt", which.attempt),
        ("run", None if which.run is None else JobId(which.run)),
        ("step", which.step or None),
    ):
        indexed.equal(column, value)
    if which.level > 0:
        indexed.demand("level >= {}", which.level)
    if which.since is not None:
        indexed.demand("at >= {}", which.since)
    if which.until is not None:
        indexed.demand("at < {}", which.until)
    if after is not None:
        indexed.demand("number > {}" if oldest_first else "number < {}", after)
    order = "asc" if oldest_first else "desc"
    if not which.text:
        rows = yield from ask(
            f"select {_COLUMNS} from taskmq.job_log {indexed.where} order by number {order} "
            f"limit {indexed.add_value(limit + 1)}",
            *indexed.args,
        )
        return _build_page(rows, after, limit, oldest_first=oldest_first)
    searched = f"select {_COLUMNS} from taskmq.job_log {indexed.where} order by number {order}"
    known = list(indexed.args)
    bound = yield from first(f"{searched} limit 1 offset ${len(known) + 1}", *known, search_lines - 1)
    rows = yield from ask(
        f"select * from ({searched} limit {indexed.add_value(search_lines)}) t "
        f"where {_LOWERED} like {indexed.add_value(contains(storable(which.text)))} escape '!' "
        f"order by number {order} limit {indexed.add_value(limit + 1)}",
        *indexed.args,
    )
    page = _build_page(rows, after, limit, oldest_first=oldest_first)
    if bound is None or len(rows) > limit:
        return page
    return LogPage(page.lines, bound[0], is_bounded=True)


def _build_page(rows: Sequence[Row], after: int | None, limit: int, *, oldest_first: bool) -> LogPage:
    found = [_line(row) for row in rows[:limit]]
    if oldest_first:
        return LogPage(found, found[-1].number if found else after)
    return LogPage(found, found[-1].number if len(rows) > limit else None)


def _line(row: Row) -> StoredLine:
    number, at, level, logger, message, job, attempt, worker, tenant, task, queue, run, step, child = row
    return StoredLine(
        number=number,
        at=at,
        level=level,
        logger=logger,
        message=message,
        job=job.removeprefix(_SENT),
        attempt=attempt,
        worker=worker,
        tenant=tenant,
        task=task,
        queue=queue,
        run="" if run is None else job_id(run),
        step=step or "",
        child=-1 if child is None else child,
    )


def _forget(*, level: int, before: int, limit: int) -> Steps[int]:
    rows = yield from ask(
        "delete from taskmq.job_log where number in ("
        "select number from taskmq.job_log where level = $1 and at < $2 order by at limit $3) returning number",
        level,
        before,
        limit,
    )
    return len(rows)
