"""Versions of the app that workers announced, in a table."""

from collections.abc import Collection, Sequence
from typing import Final

from taskmq.model.telemetry.app_versions import AppVersion, WorkerVersion
from taskmq.model.units import storable
from taskmq_sql.jobs.values import can_be_kept
from taskmq_sql.steps import SqlCalls, Steps, ask, insert, read_call, write_call

_REPORT: Final = """
insert into taskmq.worker_version (worker, version, first, last) @rows(text, text, bigint, bigint)
on conflict (worker, version) do update
set last = case when excluded.last > worker_version.last then excluded.last else worker_version.last end"""
_VERSIONS: Final = """
select version, min(first), max(last) from taskmq.worker_version
group by version having max(last) >= $1 and min(first) < $2 order by 2 desc, 1 desc limit $3"""
_OF_WORKERS: Final = """
select worker, version, first, last from taskmq.worker_version where worker = any($1::text[])"""
_FORGET: Final = """
delete from taskmq.worker_version where (worker, version) in (
  select worker, version from taskmq.worker_version where last < $1 limit $2) returning worker"""


class SqlVersions(SqlCalls):
    """A `VersionStore` in the database's tables."""

    @write_call
    def report(self, versions: Collection[tuple[str, str]], *, at: int) -> Steps[None]:
        # Concurrent schedulers lock the rows in one order.
        rows = sorted({(storable(worker), storable(version)) for worker, version in versions})
        yield from insert(_REPORT, [(*row, at, at) for row in rows])

    @read_call
    def versions(self, *, since: int, until: int, limit: int = 1_000) -> Steps[list[AppVersion]]:
        rows = yield from ask(_VERSIONS, since, until, limit)
        return [AppVersion(version=row[0], first=row[1], last=row[2]) for row in reversed(rows)]

    @read_call
    def of_workers(self, workers: Sequence[str]) -> Steps[list[WorkerVersion]]:
        rows = yield from ask(_OF_WORKERS, [one for one in workers if can_be_kept(one)])
        found = [WorkerVersion(worker=row[0], version=row[1], first=row[2], last=row[3]) for row in rows]
        return sorted(found, key=lambda one: (one.first, one.last))

    @write_call
    def forget(self, *, before: int, limit: int = 1_000) -> Steps[int]:
        return len((yield from ask(_FORGET, before, limit)))
