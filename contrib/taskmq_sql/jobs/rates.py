"""Starts under rates in the table `rate`: one row per rate and key, which is locked while starts are granted."""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import RatedJob, TakenStarts
from taskmq.model.limits import RateBook, RateDemand
from taskmq_sql.jobs.withdrawals import holds_lease, lock_jobs, return_behind
from taskmq_sql.steps import SqlCalls, Steps, ask, clock, insert, read_call, write_call

_LOCK: Final = """
insert into taskmq.rate as r (key, used) @rows(text, float8) on conflict (key) do update set used = r.used"""
_USED: Final = "select key, used from taskmq.rate where key = any($1::text[])"
_USE: Final = """
insert into taskmq.rate (key, used) @rows(text, float8) on conflict (key) do update set used = excluded.used"""
_UNUSED: Final = 0.0


class SqlRates(SqlCalls):
    """Rates of a `DispatchStore`, in the database's tables."""

    @write_call
    def take(self, partition: int, epoch: int, jobs: Sequence[RatedJob], *, lead: float) -> Steps[TakenStarts | None]:
        """See `DispatchStore.take_starts`."""
        if not (yield from holds_lease(partition, epoch)):
            return None
        rates = {demand.key: demand for job in jobs for demand in job.rates}
        # In one order, so that two schedulers with several rates cannot deadlock.
        keys = sorted(rates)
        yield from insert(_LOCK, [(key, _UNUSED) for key in keys])
        locked = yield from lock_jobs(job.id for job in jobs)
        book = yield from _read_book(keys, lead)
        instants: dict[str, float | None] = {}
        waiting: dict[str, str] = {}
        for job in jobs:
            found = locked.get(job.id)
            if found is None or not found.is_dispatched or found.token != job.token:
                continue
            if not job.is_sure and (closed := book.find_closed(job.rates)):
                waiting[job.id] = closed
            else:
                instant = book.take(job.rates)
                instants[job.id] = None if instant is None else instant * 1000
        yield from insert(_USE, [(key, book.used[key]) for key in keys])
        yield from return_behind(partition, waiting)
        return TakenStarts(instants, waiting, {key: book.wait(rates[key]) for key in keys})

    @read_call
    def waits(self, rates: Sequence[RateDemand], *, lead: float) -> Steps[dict[str, float]]:
        """See `DispatchStore.rate_waits`."""
        book = yield from _read_book([demand.key for demand in rates], lead)
        return {demand.key: book.wait(demand) for demand in rates}


def _read_book(keys: Sequence[str], lead: float) -> Steps[RateBook]:
    rows = yield from ask(_USED, list(keys))
    # Read last: a transaction may have waited for the rows.
    now = yield from clock()
    return RateBook({str(key): float(used) for key, used in rows}, now=now / 1000, lead=lead)
