"""The job store on a SQLite file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import (
    PARTITIONS,
    AppliedReport,
    AttemptRecord,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    HistoryEntry,
    JobAction,
    JobPage,
    JobRecord,
    JobUpdate,
    KeptJob,
    Lane,
    LaneHead,
    NewJob,
    Pick,
    ReadyJob,
    Released,
    ReturnedJob,
    StateCounts,
    Submitted,
    Withdrawn,
    partition_of,
)
from taskmq.model.clock import Clock
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.reports import Report
from taskmq.model.states import TERMINAL
from taskmq.model.units import DAY_MS
from taskmq_embedded.connection import Synchronous
from taskmq_embedded.memory import MEMORY, MemoryThread
from taskmq_embedded.work import Care
from taskmq_sql.jobs.claims import keep_results
from taskmq_sql.jobs.shared_dispatch import SharedDispatch
from taskmq_sql.retention import forget_old
from taskmq_sql.runs import SqlRuns
from taskmq_sql.schedules import SqlSchedules
from taskmq_sql.settings import KnownQuotas
from taskmq_sql.sqlite.caller_transactions import CallerTransactions
from taskmq_sql.sqlite.file.diagnosis import diagnose, size_of_pages
from taskmq_sql.sqlite.file.schema import SCHEMA_VERSION
from taskmq_sql.sqlite.file.thread import FileThread, open_threads
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.file.versions import upgrade_file, version_of_file
from taskmq_sql.sqlite.firings import SqliteFirings
from taskmq_sql.sqlite.gates import gate_of, look, open_gates, put_behind
from taskmq_sql.sqlite.jobs import dispatches, lists, maintenance, records, submissions, updates, withdrawals
from taskmq_sql.sqlite.jobs.dependencies import has_ends, release, unmet
from taskmq_sql.sqlite.jobs.foreign import FileCallers
from taskmq_sql.sqlite.jobs.reports import apply as apply_reports
from taskmq_sql.sqlite.placements import SqlitePlacements
from taskmq_sql.sqlite.quota_dispatch import count_in_flight, dispatch_within
from taskmq_sql.sqlite.repetition import resume, retry
from taskmq_sql.sqlite.runner import SqliteRunner, drive
from taskmq_sql.sqlite.step_jobs import ANSWERS
from taskmq_sql.steps import Work
from taskmq_sql.store import SqlJobStore

T = TypeVar("T")

_SHARDS: Final = 64


class SqliteJobStore(SqlJobStore):
    """A `JobStore`, `Catalogued` and `Remembering` in one file, for the processes of one host.

    Each store has a writing and a reading thread; a store in memory has none, and what a caller's transaction submits
    to it exists once that one has committed. A new file gets its tables with the
    first call.

    Args:
        address: the URL as shown to people.
        synchronous: `FULL`: answered calls survive a power failure; `NORMAL`: they survive the end of any process.
        keep_days: how long ended jobs are kept.
        patience: seconds that a call waits for other processes that locked the file.
        of: scheme of the store that one in memory replaces; it decides which `connection=` is accepted. "": any
            connection that announces its commits.
    """

    _partitions: int = PARTITIONS

    def __init__(
        self,
        address: str,
        path: Path,
        *,
        clock: Clock,
        synchronous: Synchronous = "FULL",
        keep_days: int = 30,
        patience: float = 10.0,
        of: str = "",
    ) -> None:
        self._address = address
        self.path = path
        self._is_in_memory = str(path).startswith(MEMORY)
        self._clock = clock
        self._writer, self._reader = open_threads(path, clock, synchronous=synchronous, patience=patience)
        self._callers = (
            CallerTransactions(self._writer, of=of)
            if isinstance(self._writer, MemoryThread)
            else FileCallers(path, clock)
        )
        runner = SqliteRunner(self._writer, self._reader)
        quotas = KnownQuotas(runner)
        super().__init__(
            accounts=runner,
            histories=runner,
            changes=runner,
            lookups=runner,
            reports=runner,
            jobs=SqlitePlacements(self._writer, self._reader),
            schedules=SqlSchedules(
                lists=runner,
                turns=runner,
                upkeep=runner,
                firings=SqliteFirings(self._writer, self._reader, partitions=self._partitions),
            ),
            runs=SqlRuns(
                turns=SqliteRunner(self._writer, self._reader, ANSWERS),
                lists=runner,
                lookups=runner,
                join=partial(_join, self._callers),
                quotas=quotas.current,
                is_on_loop=self._is_in_memory,
            ),
            quotas=quotas,
            ended_jobs=maintenance.ENDED_JOBS,
        )
        self._dispatching = SqliteDispatch(
            self._writer,
            self._reader,
            self.schedules,
            self.runs,
            keep_days=keep_days,
            partitions=self._partitions,
        )

    @property
    def address(self) -> str:
        return self._address

    @property
    def dispatching(self) -> "SqliteDispatch":
        return self._dispatching

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        if connection is not None:
            return self._callers.write(connection, partial(submissions.submit, jobs=list(jobs)))
        if not jobs:
            return []
        return await self._writer.add(submissions.submit, jobs, care=Care.DURABLE)

    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        return await self._look_up(partial(records.get, job_id=job_id), connection)

    async def find_key(self, tenant: str, key: str, *, connection: Any = None) -> str | None:
        return await self._look_up(partial(submissions.find_key, tenant=tenant, key=key), connection)

    async def _look_up(self, read: Callable[[Transaction], T], connection: Any) -> T:
        """Read in the caller's transaction if there is one; it sees its own uncommitted jobs."""
        if connection is None:
            return await self._reader.call(read, care=Care.READ)
        return self._callers.read(connection, read)

    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        return await self._reader.call(
            partial(lists.list_jobs, which=which, after=after, limit=limit), care=Care.READ
        )

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        return await self._reader.call(partial(lists.count_jobs, which=which, cap=cap), care=Care.READ)

    async def count_states(self, which: JobFilter = EVERYTHING, *, cap: int = 1_000) -> StateCounts:
        return await self._reader.call(partial(lists.count_states, which=which, cap=cap), care=Care.READ)

    async def update(self, update: JobUpdate) -> JobRecord | None:
        work = resume if update.before in TERMINAL else updates.update
        return await self._writer.call(partial(work, change=update), care=Care.DURABLE)

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        return await self._writer.call(partial(retry, job=job, change=update), care=Care.DURABLE)

    async def events(self, job_id: str) -> list[HistoryEntry]:
        return await self._reader.call(partial(records.events, job_id=job_id), care=Care.READ)

    async def actions(self, since: int, *, limit: int) -> list[JobAction]:
        return await self._reader.call(partial(records.actions, since=since, limit=limit), care=Care.READ)

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        return await self._reader.call(partial(records.attempts, job_id=job_id), care=Care.READ)

    async def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        return await self._reader.call(partial(unmet, job_id=job_id, limit=limit), care=Care.READ)

    async def now_ms(self) -> int:
        return await self._reader.call(lambda transaction: transaction.now, care=Care.READ)

    async def prune(self, *, keep_days: int) -> None:
        """Implement `taskmq.contracts.jobs.Prunable`."""
        await self._dispatching.drop_old(keep_days)

    async def ended_days(self) -> list[int]:
        """Implement `taskmq.contracts.jobs.Retaining`; the instants are those that workers reported."""
        return await self._reader.call(maintenance.ended_days, care=Care.READ)

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> list[KeptJob]:
        """Implement `taskmq.contracts.jobs.Retaining`."""
        work = partial(maintenance.ended_on, day=day, after=after, limit=limit)
        return await self._reader.call(work, care=Care.READ)

    async def check(self) -> None:
        # The connection checks when it is opened, and whenever the tables changed.
        await self._reader.call(lambda transaction: transaction.check(), care=Care.READ)

    async def current(self) -> str | None:
        """Implement `taskmq.contracts.jobs.Upgradable`."""
        if self._is_in_memory:
            return str(SCHEMA_VERSION)
        version = await asyncio.to_thread(version_of_file, self.path)
        return str(version) if version else None

    async def upgrade(self) -> None:
        """Implement `taskmq.contracts.jobs.Upgradable`."""
        if not self._is_in_memory:
            await asyncio.to_thread(upgrade_file, self.path)

    async def size(self) -> int:
        return await self._reader.call(size_of_pages, care=Care.READ)

    async def diagnose(self) -> list[Finding]:
        return await self._reader.call(partial(diagnose, path=self.path), care=Care.READ)

    async def aclose(self) -> None:
        await self._writer.aclose()
        await self._reader.aclose()


async def _join(callers: CallerTransactions | FileCallers, connection: Any, work: Work[T]) -> T:
    """Run a call in a caller's own transaction."""
    return callers.write(connection, lambda transaction: drive(transaction, work()))


class SqliteDispatch(SharedDispatch):
    """The `DispatchStore` of a `SqliteJobStore`."""

    def __init__(
        self,
        writer: FileThread,
        reader: FileThread,
        schedules: SqlSchedules,
        runs: SqlRuns,
        *,
        keep_days: int,
        partitions: int,
    ) -> None:
        self._runner = SqliteRunner(writer, reader)
        find_partition = partial(partition_of, partitions=partitions)
        # Leases go over the writing thread, because they must not wait for lists.
        super().__init__(self._runner, self._runner, leases=SqliteRunner(writer, writer), partition_of=find_partition)
        self._writer = writer
        self._reader = reader
        self._schedules = schedules
        self._runs = runs
        self._keep_days = keep_days
        self._partitions = partitions

    @property
    def partitions(self) -> int:
        return self._partitions

    async def lanes(self, partition: int) -> list[Lane]:
        found = await self._reader.call(dispatches.lanes, care=Care.READ)
        return [lane for lane in found if self.partition_of(lane.queue) == partition]

    async def heads(self, queues: Sequence[str]) -> dict[Lane, LaneHead]:
        return await self._reader.call(partial(dispatches.heads, queues=queues), care=Care.READ)

    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        if not picks:
            return None
        work = partial(dispatches.dispatch, partition=partition, epoch=epoch, picks=picks)
        return await self._writer.call(work, care=Care.DURABLE)

    async def dispatch_within(
        self, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
    ) -> DispatchBatch | None:
        work = partial(dispatch_within, partition=partition, epoch=epoch, picks=picks, limits=quotas)
        return await self._writer.call(work, care=Care.DURABLE)

    async def count_in_flight(self, tenant: str) -> dict[str, int]:
        return await self._reader.call(partial(count_in_flight, tenant=tenant), care=Care.READ)

    async def look(self, picks: Sequence[Pick]) -> list[ReadyJob]:
        return await self._reader.call(partial(look, picks=picks), care=Care.READ)

    async def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        # If a power failure undoes it, the job is ready again and gets checked again.
        await self._writer.call(partial(put_behind, partition=partition, epoch=epoch, gates=gates), care=Care.LOOSE)

    async def open_gates(self, partition: int, epoch: int, gates: Mapping[str, int]) -> list[tuple[str, Lane]]:
        return await self._writer.call(
            partial(open_gates, partition=partition, epoch=epoch, gates=gates), care=Care.LOOSE
        )

    async def gate_of(self, job_id: str) -> str:
        return await self._reader.call(partial(gate_of, job_id=job_id), care=Care.READ)

    async def confirm(self, batches: Sequence[int]) -> None:
        # If a power failure undoes it, the batch counts as unconfirmed and is published again.
        await self._writer.call(partial(dispatches.confirm, batches=batches), care=Care.LOOSE)

    async def forget(self, batches: Sequence[int]) -> None:
        await self._writer.call(partial(dispatches.forget, batches=batches), care=Care.LOOSE)

    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        work = partial(
            withdrawals.undispatch, partition=partition, epoch=epoch, jobs=jobs, delay=delay, reason=reason
        )
        return await self._writer.call(work, care=Care.DURABLE)

    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        work = partial(
            withdrawals.fail, partition=partition, epoch=epoch, jobs=jobs, reason=reason, also_running=also_running
        )
        return await self._writer.call(work, care=Care.DURABLE)

    async def dispatch_again(self, partition: int, epoch: int, jobs: Sequence[ReturnedJob]) -> DispatchBatch | None:
        work = partial(dispatches.dispatch_again, partition=partition, epoch=epoch, jobs=jobs)
        return await self._writer.call(work, care=Care.DURABLE)

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        return await self._writer.call(
            partial(dispatches.take_over, partition=partition, epoch=epoch), care=Care.DURABLE
        )

    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return await self._writer.add(apply_reports, [(report, came_by) for report in reports], care=Care.DURABLE)

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        shards = range(partition, _SHARDS, self._partitions)
        work = partial(updates.due, shards=shards, until=until, limit=limit)
        return await self._reader.call(work, care=Care.READ)

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        return await self._writer.call(
            partial(updates.fire, partition=partition, epoch=epoch, jobs=jobs), care=Care.DURABLE
        )

    async def release_dependents(self, *, limit: int = 500) -> Released:
        # Nearly always there is nothing to do, and then no caller has to wait for the file.
        if not await self._reader.call(has_ends, care=Care.READ):
            return Released()
        return await self._writer.call(partial(release, limit=limit), care=Care.DURABLE)

    async def in_flight(self, partition: int, *, dispatched_before: int) -> list[JobRecord]:
        work = partial(dispatches.in_flight, partition=partition, dispatched_before=dispatched_before)
        return await self._reader.call(work, care=Care.READ)

    async def maintain(self, *, forgets: bool = True) -> None:
        if forgets:
            await self.drop_old(self._keep_days)
        await self._runner.change(forget_old, is_lasting=False)

    async def drop_old(self, keep_days: int) -> None:
        """Delete the days that ended earlier, and return free pages to the file system."""
        await self._runner.change(partial(keep_results, keep_days * DAY_MS))
        work = partial(maintenance.drop_old, keep_days=keep_days)
        # In small transactions, so that others can write meanwhile.
        while await self._writer.call(work, care=Care.LOOSE):
            pass
        now = await self._reader.call(lambda transaction: transaction.now, care=Care.READ)
        await self._schedules.drop_occurrences(before=now - keep_days * DAY_MS)
        await self._runs.forget_ended(before=now - keep_days * DAY_MS)
        while await self._writer.call(maintenance.give_back_pages, care=Care.LOOSE):
            pass
