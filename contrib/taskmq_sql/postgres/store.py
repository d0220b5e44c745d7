"""The job store on PostgreSQL, for apps and operators."""

import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import (
    AttemptRecord,
    HistoryEntry,
    JobAction,
    JobPage,
    JobRecord,
    JobUpdate,
    KeptJob,
    NewJob,
    ReplicaStatus,
    StateCounts,
    Submitted,
)
from taskmq.errors import StoreMismatch, StoreUnavailable
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.changes import change
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import unmet
from taskmq_sql.postgres.dispatch.store import PostgresDispatch
from taskmq_sql.postgres.ended import retention
from taskmq_sql.postgres.ended.repetition import resume, retry
from taskmq_sql.postgres.firings import PostgresFirings
from taskmq_sql.postgres.lists import Known, Scan, Statement, page_of, scans
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.nodes import PostgresPlacements
from taskmq_sql.postgres.records import attempt_records, history_entries, job_actions, job_records
from taskmq_sql.postgres.runs import ANSWERS
from taskmq_sql.postgres.statements import JOB_COLUMNS
from taskmq_sql.postgres.submission import submit
from taskmq_sql.postgres.transactions import connection_of, drive
from taskmq_sql.postgres.upkeep.diagnosis import POOLED_BY_TRANSACTION, diagnose
from taskmq_sql.postgres.upkeep.pooler import is_pooled_by_transaction
from taskmq_sql.runs import SqlRuns
from taskmq_sql.schedules import SqlSchedules
from taskmq_sql.settings import KnownQuotas
from taskmq_sql.steps import Work
from taskmq_sql.store import SqlJobStore

T = TypeVar("T")

_COLUMNS: Final = JOB_COLUMNS.removesuffix(", body")
_BODY: Final = "coalesce(t.body, (select body from taskmq.job_body b where b.id = t.id)) as body"
_DETAIL: Final = "(select detail from taskmq.job_detail d where d.id = t.id) as detail"
_GET: Final = f"""
select {_COLUMNS}, null::bigint as finished, null::text as content_type, null::bytea as result,
       null::uuid as retried_as, null::bigint as processor_ms, null::bigint as peak_memory, {_BODY}, {_DETAIL}
from taskmq.job t where t.id = $1
union all (
select {_COLUMNS}, finished, content_type, result, retried_as, processor_ms, peak_memory, {_BODY}, {_DETAIL}
from taskmq.job_history t where t.id = $1 and t.ended >= $2 order by ended desc limit 1)
limit 1"""
_NOW: Final = "select taskmq.now_ms()"
_SIZE: Final = "select pg_database_size(current_database())"
_FIND_KEY: Final = "select id from taskmq.job_key where tenant = $1 and key = $2"
_FIND_KEYS: Final = "select id from taskmq.job_key where tenant = $1 and key = any($2::text[])"
_EVENTS: Final = """
select version, at, kind, state, actor, note, started from taskmq.event where id = $1 order by number"""
# A job ends after every action on it, except for statements that wait for a lock; earlier days are skipped.
_ACTIONS: Final = """
select e.id, e.version, e.at, e.kind, e.state, e.actor, e.note, e.started, j.key, j.tenant, j.task, j.queue
from (select * from taskmq.event where at >= $1 order by at desc, number desc limit $2) e cross join lateral
  (select key, tenant, task, queue from taskmq.job where id = e.id
   union all select key, tenant, task, queue from taskmq.job_history
   where id = e.id and ended > e.at - 3600000 limit 1) j
order by e.at, e.number"""
_ATTEMPTS: Final = """
select attempt, state, started, ended, worker, error_type, error_message, traceback, processor_ms, peak_memory
from taskmq.attempt
where id = $1 order by attempt, at"""


class PostgresJobStore(SqlJobStore):
    """A `JobStore`, `Catalogued` and `Remembering` in PostgreSQL.

    Args:
        url: `postgresql://user:password@host/database`, with asyncpg's options after a `?`. Several hosts are
            separated by commas; `?target_session_attrs=read-write` selects the primary.
        name: application name of this process at the server.
    """

    def __init__(self, url: str, *, name: str = "taskmq") -> None:
        self._url = url
        self._database = Database(url, name=name)
        runner = partial(self._database.runner, self._database.reads)
        lookups = self._database.runner(self._database.lookups, self._database.changes)
        quotas = KnownQuotas(lookups)
        super().__init__(
            accounts=runner(self._database.accounts),
            histories=runner(self._database.histories),
            changes=runner(self._database.changes),
            lookups=lookups,
            reports=self._database.runner(self._database.steps, self._database.reports),
            jobs=PostgresPlacements(self._database),
            schedules=SqlSchedules(
                lists=runner(self._database.changes),
                turns=self._database.runner(self._database.firings, self._database.firings),
                upkeep=runner(self._database.upkeep),
                firings=PostgresFirings(self._database),
            ),
            runs=SqlRuns(
                turns=self._database.runner(self._database.runs, self._database.runs, ANSWERS),
                lists=runner(self._database.upkeep),
                lookups=self._database.runner(self._database.lookups, self._database.submits),
                join=partial(_join, self._database.names),
                quotas=quotas.current,
                is_on_loop=True,
                known=self._database.known_runs,
            ),
            quotas=quotas,
            ended_jobs=retention.ENDED_JOBS,
        )
        self._dispatching = PostgresDispatch(self._database, self.schedules, self.runs)

    @property
    def address(self) -> str:
        return self._database.address

    @property
    def dispatching(self) -> PostgresDispatch:
        return self._dispatching

    def use_replica(self, url: str, *, max_age: float) -> None:
        """Implement `taskmq.contracts.jobs.Replicated`."""
        self._database.use_replica(url, max_age=max_age)

    async def replica_status(self) -> ReplicaStatus | None:
        """Implement `taskmq.contracts.jobs.Replicated`."""
        replica = self._database.replica
        return None if replica is None else await replica.status()

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        if not jobs:
            return []
        own = None if connection is None else await connection_of(connection)
        return await submit(self._database, jobs, own, quotas=await self._quotas.current())

    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        if not is_job_id(job_id):
            return None
        # No job ends before its submission, so earlier days are skipped. The second lookup covers all days; it finds
        # an id that a clock more than a day ahead created.
        earliest = submitted_at(job_id) - DAY_MS

        async def get(connection: Connection) -> Row | None:
            return await connection.fetchrow(_GET, job_id, earliest) or await connection.fetchrow(_GET, job_id, 0)

        row = await self._look_up(get, connection)
        return None if row is None else (await job_records([row], self._database.names))[0]

    async def find_key(self, tenant: str, key: str, *, connection: Any = None) -> str | None:
        numbers = await self._database.names.find("tenant", [tenant])
        if tenant not in numbers or "\0" in key:
            return None
        found = await self._look_up(lambda own: own.fetchval(_FIND_KEY, numbers[tenant], key), connection)
        return None if found is None else str(found)

    async def _look_up(self, read: Callable[[Connection], Awaitable[T]], connection: Any) -> T:
        """Read in the caller's transaction if there is one; it sees its own uncommitted jobs."""
        if connection is None:
            return await self._database.lookups.run("read", read)
        return await read(await connection_of(connection))

    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        if (known := await self._resolve_names(which)) is None:
            return JobPage([], None)
        after = None if after is None else str(uuid.UUID(after))
        jobs: list[JobRecord] = []
        floors: list[str] = []
        for scan in scans(which, known):
            rows, floor = await self._walk(scan, limit + 1, after)
            jobs += await job_records(rows, self._database.names)
            if floor is not None:
                floors.append(floor)
        return page_of(jobs, floors, limit)

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        if (known := await self._resolve_names(which)) is None:
            return 0
        total = 0
        for scan in scans(which, known):
            floor = await self._floor(scan, None)
            total += (await self._fetch(scan.count(cap, until=floor)))[0][0]
            if floor is not None or total > cap:
                return cap + 1
        return total

    async def count_states(self, which: JobFilter = EVERYTHING, *, cap: int = 1_000) -> StateCounts:
        if (known := await self._resolve_names(which)) is None:
            return StateCounts({}, is_exact=True)
        counts: dict[JobState, int] = {}
        is_exact = True
        # Live and ended jobs have different states.
        for scan in scans(which, known):
            rows = await self._fetch(scan.count_states(cap))
            counts |= {STATES[state]: matching for state, matching, _ in rows if matching}
            is_exact = is_exact and sum(examined for _, _, examined in rows) < cap
        return StateCounts(counts, is_exact)

    async def update(self, update: JobUpdate) -> JobRecord | None:
        return await (resume if update.before in TERMINAL else change)(self._database, update)

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        return await retry(self._database, job, update, quotas=await self._quotas.current())

    async def events(self, job_id: str) -> list[HistoryEntry]:
        if not is_job_id(job_id):
            return []
        return history_entries(await self._rows(_EVENTS, job_id))

    async def actions(self, since: int, *, limit: int) -> list[JobAction]:
        return await job_actions(await self._rows(_ACTIONS, since, limit), self._database.names)

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        if not is_job_id(job_id):
            return []
        return await attempt_records(await self._rows(_ATTEMPTS, job_id), self._database.names)

    async def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        if not is_job_id(job_id):
            return []
        return await self._database.lookups.run("read", lambda connection: unmet(connection, job_id, limit))

    async def now_ms(self) -> int:
        return int(await self._database.lookups.run("read", lambda connection: connection.fetchval(_NOW)))

    async def current(self) -> str | None:
        """Implement `taskmq.contracts.jobs.Upgradable`."""
        from taskmq_sql.migrations import current

        return await _run_migration(current(self._url), self.address)

    async def upgrade(self) -> None:
        """Implement `taskmq.contracts.jobs.Upgradable`."""
        from taskmq_sql.migrations import upgrade

        await _run_migration(upgrade(self._url), self.address)

    async def prune(self, *, keep_days: int) -> None:
        """Implement `taskmq.contracts.jobs.Prunable`, by whole days in UTC."""
        await self._dispatching.drop_days(keep_days)

    async def ended_days(self) -> list[int]:
        """Implement `taskmq.contracts.jobs.Retaining`."""
        return await self._database.reads.run("read", retention.ended_days)

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> list[KeptJob]:
        """Implement `taskmq.contracts.jobs.Retaining`."""
        database = self._database
        return await retention.ended_on(database.reads, database.names, day, after=after, limit=limit)

    async def check(self) -> None:
        await self._rows("select 1")

    async def size(self) -> int:
        return int(await self._database.reads.run("read", lambda connection: connection.fetchval(_SIZE)))

    async def diagnose(self) -> list[Finding]:
        # Checked first: behind such a pooler no other query is reliable.
        if await is_pooled_by_transaction(self._database.reads.connect_bare):
            return [POOLED_BY_TRANSACTION]
        return await self._database.reads.run("read", lambda connection: diagnose(connection, self.address))

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _resolve_names(self, which: JobFilter) -> Known | None:
        """Return the filter's names as numbers; None if nothing can match."""
        if which.via == "broker":
            return None
        names = self._database.names
        tenant: int | None = None
        if which.tenant is not None:
            tenant = (await names.find("tenant", [which.tenant])).get(which.tenant)
            if tenant is None:
                return None
        tasks = set((await names.find("task", which.tasks)).values()) if which.tasks else None
        if which.task_prefix:
            begins = set(await names.find_prefix("task", which.task_prefix))
            tasks = begins if tasks is None else tasks & begins
        queues = set((await names.find("queue", which.queues)).values()) if which.queues else None
        ids = {one for one in which.ids if is_job_id(one)} if which.ids else None
        if which.keys and tenant is not None:
            keys = [key for key in which.keys if "\0" not in key]
            keyed = {str(row[0]) for row in await self._rows(_FIND_KEYS, tenant, keys)}
            ids = keyed if ids is None else ids & keyed
        if any(found is not None and not found for found in (tasks, queues, ids)):
            return None
        return Known(
            tenant=tenant,
            tasks=None if tasks is None else sorted(tasks),
            queues=None if queues is None else sorted(queues),
            ids=None if ids is None else sorted(ids),
        )

    async def _walk(self, scan: Scan, limit: int, after: str | None) -> tuple[Sequence[Row], str | None]:
        """Return the newest rows of a scan, from the latest days or else from all, and the id at which it stopped."""
        newest = round(time.time() * 1000) if after is None else submitted_at(after)
        rows: Sequence[Row] = []
        if scan.rest:
            # Finding the bound takes longer than filling most pages.
            rows = await self._fetch(scan.windows(newest, floor=None)[0].glance(limit, after=after))
            if len(rows) == limit:
                return rows, None
        floor = await self._floor(scan, after)
        for walk in scan.windows(newest, floor=floor):
            rows = await self._fetch(walk.rows(limit, after=after, until=floor))
            if len(rows) == limit:
                return rows, None
        return rows, floor

    async def _floor(self, scan: Scan, after: str | None) -> str | None:
        """Return the id at which the scan stops; None if it has no bound."""
        if not scan.rest:
            return None
        rows = await self._fetch(scan.boundary(after=after))
        return str(rows[0][0]) if rows else None

    async def _fetch(self, statement: Statement) -> Sequence[Row]:
        text, values = statement
        return await self._database.shown_walks.run("read", lambda connection: connection.fetch(text, *values))

    async def _rows(self, query: str, *args: object) -> Sequence[Row]:
        return await self._database.walks.run("read", lambda connection: connection.fetch(query, *args))


async def _join(names: Names, connection: Any, work: Work[T]) -> T:
    """Run a call in a caller's own transaction."""
    return await drive(await connection_of(connection), work(), names)


async def _run_migration(work: Coroutine[Any, Any, T], address: str) -> T:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return await work
    except StoreMismatch as error:
        raise StoreMismatch(f"job store {address}: {error}") from None
    except (SQLAlchemyError, OSError) as error:
        raise StoreUnavailable(f"job store {address}: {str(error).partition(chr(10))[0]}") from error
