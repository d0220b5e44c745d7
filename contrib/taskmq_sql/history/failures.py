"""Groups of failures, counted in the tables of ended jobs and reported failures, and their marks."""

from typing import Final

from taskmq.contracts.history import FailureCount
from taskmq.model.history.failure_groups import FailureKey, FailureMark, check_marks
from taskmq.model.identity import AuditEntry
from taskmq.model.states import JobState
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.identity import note
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import LOCK, Row, Runner, SqlCalls, Steps, ask, find_numbers, names_of, read_call, write_call

# The order and the first condition are those of the indexes of unsuccessful jobs: no more rows are read than counted.
_OF_JOBS: Final = """
select tenant, task, coalesce(nullif(error_type, ''), '{state}') as error, finished as at,
    substr(coalesce({message}, ''), 1, 200) as message, coalesce(cast(worker as text), '') as worker
from taskmq.job_history where state <> 5 and state = {code} {tenant} order by id desc limit $3"""
_OF_REPORTS: Final = """
select tenant, task, coalesce(nullif(error, ''), nullif(reason, ''), event) as error, at,
    substr(message, 1, 200) as message, worker
from taskmq.run_failure {tenant} order by number desc limit $3"""
# The first failure's worker follows its time, which has 15 digits.
_COUNT: Final = """
select tenant, task, error, case when at < $1::bigint then -1 else (at - $1::bigint) / $2::bigint end, count(*),
    min(at), max(at), max(message), substr(min(cast(at + 100000000000000 as text) || worker), 16)
from ({newest}) as newest group by 1, 2, 3, 4"""
_COUNTED: Final = (JobState.FAILED, JobState.EXPIRED)
_MARKS: Final = "select tenant, task, error, state, at, until, actor, note from taskmq.failure_mark"
_PUT: Final = """
insert into taskmq.failure_mark (tenant, task, error, state, at, until, actor, note)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (tenant, task, error) do update
set state = excluded.state, at = excluded.at, until = excluded.until, actor = excluded.actor, note = excluded.note"""
_OTHERS: Final = "select count(*) from taskmq.failure_mark where tenant = $1 and not (task = $2 and error = $3)"
_REMOVE: Final = "delete from taskmq.failure_mark where tenant = $1 and task = $2 and error = $3 returning state"
_FORGET: Final = "delete from taskmq.failure_mark where (state = 'resolved' and at < $1) or until < $1"


class SqlFailures(SqlCalls):
    """A `FailureGroupStore` in the database's tables.

    Args:
        message: column of ended jobs with the message of their errors.
    """

    def __init__(self, runner: Runner, *, message: str) -> None:
        super().__init__(runner)
        self._message = message

    @read_call
    def counts(
        self, *, since: int, step: int, tenant: str | None = None, most: int = 10_000
    ) -> Steps[list[FailureCount]]:
        if not can_be_kept(tenant or ""):
            return []
        args: list[object] = [since, step, most]
        where = "" if tenant is None else "where tenant = $4"
        newest = _OF_REPORTS.format(tenant=where)
        rows = yield from ask(_COUNT.format(newest=newest), *args, *([] if tenant is None else [tenant]))
        found = [_count(row, row[0], row[1], row[8]) for row in rows]
        numbers: list[int] = []
        if tenant is not None:
            numbers = list((yield from find_numbers("tenant", [tenant])).values())
            if not numbers:
                return found
        ended: list[Row] = []
        for state in _COUNTED:
            newest = _OF_JOBS.format(
                state=state, code=CODES[state], message=self._message, tenant="and tenant = $4" if numbers else ""
            )
            ended += yield from ask(_COUNT.format(newest=newest), *args, *numbers)
        tenants = yield from names_of("tenant", (row[0] for row in ended))
        tasks = yield from names_of("task", (row[1] for row in ended))
        workers = yield from names_of("worker", (int(row[8]) for row in ended if row[8]))
        return found + [
            _count(row, tenants[row[0]], tasks[row[1]], workers[int(row[8])] if row[8] else "") for row in ended
        ]

    @read_call
    def marks(self, tenant: str | None = None) -> Steps[list[FailureMark]]:
        if not can_be_kept(tenant or ""):
            return []
        conditions = Conditions()
        conditions.equal("tenant", tenant)
        rows = yield from ask(f"{_MARKS} {conditions.where} order by tenant, task, error", *conditions.args)
        return [
            FailureMark(key=FailureKey(*row[:3]), state=row[3], at=row[4], until=row[5], by=row[6], note=row[7])
            for row in rows
        ]

    @write_call
    def put_mark(self, mark: FailureMark, *, audit: AuditEntry) -> Steps[None]:
        yield LOCK
        ((others,),) = yield from ask(_OTHERS, *mark.key)
        check_marks(others)
        yield from ask(_PUT, *mark.key, mark.state, mark.at, mark.until, mark.by, mark.note)
        yield from note([audit])

    @write_call
    def remove_mark(self, key: FailureKey, *, audit: AuditEntry) -> Steps[bool]:
        if not can_be_kept(*key):
            return False
        yield LOCK
        rows = yield from ask(_REMOVE, *key)
        yield from note([audit] if rows else [])
        return bool(rows)

    @write_call
    def forget(self, *, before: int) -> Steps[None]:
        yield from ask(_FORGET, before)


def _count(row: Row, tenant: str, task: str, worker: str) -> FailureCount:
    _, _, error, slot, count, first, last, message, _ = row
    key = FailureKey(tenant, task, error)
    return FailureCount(key=key, slot=slot, count=count, first=first, last=last, message=message, first_worker=worker)
