"""Metrics by the minute, and failed runs, in tables."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from taskmq.contracts.history import FailureFilter, FailurePage, RollupFilter
from taskmq.model.history.rollups import DAY, MINUTE, QUARTER, Buckets, Rollup, RollupKey, RunFailure
from taskmq.model.units import storable
from taskmq_sql.history.conditions import Conditions
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import LOCK, Row, SqlCalls, Steps, ask, insert, write_call

_FAILURE: Final = "at, job, event, task, queue, tenant, worker, attempt, seconds, error, reason, message, traceback"
_ADD_FAILURES: Final = f"""
insert into taskmq.run_failure ({_FAILURE})
@rows(bigint, text, text, text, text, text, text, int, double precision, text, text, text, text)"""
_PUT: Final = """
insert into taskmq.rollup (minute, task, queue, tenant, figures) values ($1, $2, $3, $4, $5)
on conflict (minute, task, queue, tenant) do update set figures = excluded.figures"""
_GET: Final = """
select figures from taskmq.rollup where minute = $1 and task = $2 and queue = $3 and tenant = $4"""
_PUT_SUM: Final = """
insert into taskmq.rollup_sum (minute, task, queue, tenant, figures, kind) values ($1, $2, $3, $4, $5, $6)
on conflict (kind, tenant, minute, task, queue) do update set figures = excluded.figures"""
_GET_SUM: Final = """
select figures from taskmq.rollup_sum
where minute = $1 and task = $2 and queue = $3 and tenant = $4 and kind = $5"""
_KINDS: Final = {(MINUTE, True): 1, (QUARTER, False): 2, (QUARTER, True): 3, (DAY, False): 4}
"""Codes of sums, by their step and whether they cover all tenants."""


class _Figures(msgspec.Struct, array_like=True):
    outcomes: dict[str, int]
    waited: Buckets
    ran: Buckets
    processor: float = 0.0


class SqlRollups(SqlCalls):
    """A `RollupStore` in the database's tables."""

    async def add(self, rollups: Sequence[Rollup], failures: Sequence[RunFailure] = ()) -> None:
        if rollups or failures:
            await self.runner.write(partial(_add, rollups=rollups, failures=failures))

    async def rollups(
        self, which: RollupFilter, *, after: RollupKey | None = None, limit: int = 50_000
    ) -> list[Rollup]:
        if not all(can_be_kept(text) for text in (which.task or "", which.queue or "", which.tenant or "")):
            return []
        if which.tenants is not None:
            which = msgspec.structs.replace(which, tenants=frozenset(filter(can_be_kept, which.tenants)))
            if not which.tenants:
                return []
        return await self.runner.show(partial(_rollups, which=which, after=after, limit=limit))

    async def failures(self, which: FailureFilter, *, after: int | None = None, limit: int = 50) -> FailurePage:
        texts = (which.task, which.queue, which.tenant, which.job, which.error)
        if not all(can_be_kept(text or "") for text in texts):
            return FailurePage([], None)
        if which.jobs is not None:
            which = msgspec.structs.replace(which, jobs=frozenset(filter(can_be_kept, which.jobs)))
            if not which.jobs:
                return FailurePage([], None)
        return await self.runner.show(partial(_failures, which=which, after=after, limit=limit))

    @write_call
    def forget(self, *, before: int, limit: int = 1_000) -> Steps[int]:
        figures = yield from ask(
            "delete from taskmq.rollup where (minute, task, queue, tenant) in ("
            "select minute, task, queue, tenant from taskmq.rollup where minute < $1 order by minute limit $2) "
            "returning minute",
            before,
            limit,
        )
        sums = yield from ask(
            "delete from taskmq.rollup_sum where (kind, tenant, minute, task, queue) in ("
            "select kind, tenant, minute, task, queue from taskmq.rollup_sum where minute < $1 order by minute "
            "limit $2) returning minute",
            before // QUARTER * QUARTER,
            limit,
        )
        failures = yield from ask(
            "delete from taskmq.run_failure where number in ("
            "select number from taskmq.run_failure where at < $1 order by at limit $2) returning number",
            before,
            limit,
        )
        return max(len(figures), len(sums)) + len(failures)


def _add(*, rollups: Sequence[Rollup], failures: Sequence[RunFailure]) -> Steps[None]:
    # Read, merge, write: without the lock, concurrent calls would lose each other's additions.
    yield LOCK
    yield from _merge(rollups, _GET, _PUT)
    for (step, is_whole), kind in _KINDS.items():
        yield from _merge(_sums(rollups, step, is_whole=is_whole), _GET_SUM, _PUT_SUM, kind)
    yield from insert(_ADD_FAILURES, list(map(_values, failures)))


def _merge(rollups: Iterable[Rollup], get: str, put: str, *kind: int) -> Steps[None]:
    for one in rollups:
        key = (one.key.minute, storable(one.key.task), storable(one.key.queue), storable(one.key.tenant))
        whole = Rollup(one.key)
        for row in (yield from ask(get, *key, *kind)):
            whole.merge(_rollup(one.key, row[0]))
        whole.merge(one)
        yield from ask(put, *key, _text(whole), *kind)


def _sums(rollups: Sequence[Rollup], step: int, *, is_whole: bool) -> Iterable[Rollup]:
    found: dict[RollupKey, Rollup] = {}
    for one in rollups:
        tenant = "" if is_whole else one.key.tenant
        key = RollupKey(one.key.minute // step * step, one.key.task, one.key.queue, tenant)
        found.setdefault(key, Rollup(key)).merge(one)
    return found.values()


def _rollups(*, which: RollupFilter, after: RollupKey | None, limit: int) -> Steps[list[Rollup]]:
    conditions = Conditions()
    is_sum = (which.step, which.is_whole) != (MINUTE, False)
    if is_sum:
        conditions.equal("kind", _KINDS[which.step, which.is_whole])
    if which.is_whole:
        conditions.equal("tenant", "")
    conditions.demand("minute >= {}", which.since)
    conditions.demand("minute < {}", which.until)
    for column, value in (("task", which.task), ("queue", which.queue), ("tenant", which.tenant)):
        conditions.equal(column, value)
    if which.tenants is not None:
        conditions.demand("tenant in ({})", *sorted(which.tenants))
    if after is not None:
        names = (storable(after.task), storable(after.queue), storable(after.tenant))
        conditions.demand("(minute, task, queue, tenant) > ({})", after.minute, *names)
    rows = yield from ask(
        f"select minute, task, queue, tenant, figures from taskmq.{'rollup_sum' if is_sum else 'rollup'} "
        f"{conditions.where} "
        f"order by minute, task, queue, tenant limit {conditions.add_value(limit)}",
        *conditions.args,
    )
    return [_rollup(RollupKey(*row[:4]), row[4]) for row in rows]


def _failures(*, which: FailureFilter, after: int | None, limit: int) -> Steps[FailurePage]:
    conditions = Conditions()
    for column, value in (
        ("task", which.task),
        ("queue", which.queue),
        ("tenant", which.tenant),
        ("job", which.job),
        ("error", which.error),
    ):
        conditions.equal(column, value)
    if which.jobs is not None:
        conditions.demand("job in ({})", *sorted(which.jobs))
    for condition, bound in (("at >= {}", which.since), ("at < {}", which.until), ("number < {}", after)):
        if bound is not None:
            conditions.demand(condition, bound)
    rows = yield from ask(
        f"select number, {_FAILURE} from taskmq.run_failure {conditions.where} order by number desc "
        f"limit {conditions.add_value(limit + 1)}",
        *conditions.args,
    )
    found = [_failure(row) for row in rows[:limit]]
    return FailurePage(found, found[-1].number if len(rows) > limit else None)


def _text(rollup: Rollup) -> str:
    return msgspec.json.encode(_Figures(rollup.outcomes, rollup.waited, rollup.ran, rollup.processor)).decode()


def _rollup(key: RollupKey, figures: str) -> Rollup:
    read = msgspec.json.decode(figures, type=_Figures)
    return Rollup(key, read.outcomes, read.waited, read.ran, read.processor)


def _values(failure: RunFailure) -> tuple[object, ...]:
    return tuple(getattr(failure, name) for name in _FAILURE.split(", "))


def _failure(row: Row) -> RunFailure:
    names = ("number", *_FAILURE.split(", "))
    values: dict[str, Any] = dict(zip(names, row, strict=True))
    return RunFailure(**values)
