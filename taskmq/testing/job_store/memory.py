"""A job store in this process, for tests of what uses one."""

import builtins
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import (
    AppliedReport,
    AttemptRecord,
    DispatchBatch,
    DispatchedJob,
    DueJob,
    DueSchedule,
    FiredOccurrence,
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
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    Submitted,
    Withdrawn,
    partition_key,
)
from taskmq.contracts.stores import Lease
from taskmq.errors import OccurrenceConflict, StateUnavailable, StoreUnavailable
from taskmq.model.clock import Clock
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.pools import Sharing
from taskmq.model.jobs.proofs import ReportKey, new_report_key
from taskmq.model.jobs.quotas import Quotas, QuotaUsage, RunBook, looked_at
from taskmq.model.jobs.reports import Report
from taskmq.model.states import TERMINAL, UNDERWAY
from taskmq.testing.caller_transactions import CallerTransactions
from taskmq.testing.fake_clock import FakeClock
from taskmq.testing.job_store.bulks import BulksAtWork, MemoryBulks
from taskmq.testing.job_store.catalogue import CatalogueModel, MemoryDefinitions, MemoryTasks
from taskmq.testing.job_store.gates import look, open_gates, put_behind
from taskmq.testing.job_store.history import HistoryAtWork, MemoryHistory
from taskmq.testing.job_store.identity import MemoryIdentities
from taskmq.testing.job_store.memory_nodes import MemoryNodes
from taskmq.testing.job_store.model import JobModel

__all__ = ["MemoryJobStore", "retry"]

_ADDRESS = "memory://jobs"


class MemoryJobStore:
    """A `JobStore`, and with `dispatching` a `DispatchStore`, over a `JobModel`.

    Several stores over one model are several processes' worth of stores on one database. What is submitted with a
    `connection=` of SQLAlchemy is there once that one's transaction has committed.

    Args:
        model: the jobs; new ones unless it is given.
        clock: the store's; a `FakeClock` unless it is given.
        of: the URL of the store that it is in place of, which says what `connection=` may be.

    Attributes:
        definitions, tasks: what is kept beside jobs, see `taskmq.contracts.jobs.Catalogued`.
        history: what is remembered of runs, see `taskmq.contracts.history`.
        is_reachable: set it to False and every call raises, as in an outage.
    """

    def __init__(self, model: JobModel | None = None, *, clock: Clock | None = None, of: str = "") -> None:
        self.model = model or JobModel()
        self.clock: Clock = clock or FakeClock()
        self.is_reachable = True
        self._is_closed = False
        self._dispatching = _MemoryDispatch(self)
        self._identity = MemoryIdentities(self.model.identity, look=lambda: self.at_work().now)
        self._bulks = MemoryBulks(self._at_bulks)
        self._schedules = _MemorySchedules(self)
        self._transactions = CallerTransactions(self._now, lambda model, jobs: model.submit(jobs), of=of)
        self._nodes = MemoryNodes(self.at_work)
        self.definitions = MemoryDefinitions(self._catalogue)
        self.tasks = MemoryTasks(self._catalogue)
        self.history = MemoryHistory(self._remembering)

    @property
    def address(self) -> str:
        return _ADDRESS

    @property
    def dispatching(self) -> "_MemoryDispatch":
        return self._dispatching

    @property
    def identity(self) -> MemoryIdentities:
        return self._identity

    @property
    def bulks(self) -> MemoryBulks:
        return self._bulks

    @property
    def schedules(self) -> "_MemorySchedules":
        return self._schedules

    @property
    def nodes(self) -> MemoryNodes:
        return self._nodes

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        model = self.at_work()
        return model.submit(jobs) if connection is None else self._transactions.submit(connection, jobs)

    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        return self._seen(connection).jobs.get(job_id)

    async def find_key(self, tenant: str, key: str, *, connection: Any = None) -> str | None:
        return self._seen(connection).find_key(tenant, key)

    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        return self.at_work().list_jobs(which, after=after, limit=limit)

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        return self.at_work().count_jobs(which, cap=cap)

    async def update(self, update: JobUpdate) -> JobRecord | None:
        return self.at_work().update(update)

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        return retry(self.at_work(), job, update)

    async def events(self, job_id: str) -> list[HistoryEntry]:
        return self.at_work().events(job_id)

    async def actions(self, since: int, *, limit: int) -> list[JobAction]:
        return self.at_work().actions(since, limit=limit)

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        return self.at_work().attempts(job_id)

    async def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        return self.at_work().unmet(job_id, limit=limit)

    async def sharing(self) -> Sharing:
        return self.at_work().sharing

    async def share(self, sharing: Sharing) -> bool:
        return self.at_work().share(sharing)

    async def ended_days(self) -> list[int]:
        return self.at_work().ended_days()

    async def ended_on(self, day: int, *, after: str | None = None, limit: int = 500) -> list[KeptJob]:
        return self.at_work().ended_on(day, after=after, limit=limit)

    async def forget_ended(self, ids: Sequence[str]) -> int:
        return self.at_work().forget_ended(ids)

    async def forget_tenant(self, tenant: str) -> None:
        self.at_work().forget_tenant(tenant)

    async def quotas(self) -> Quotas:
        return self.at_work().quotas

    async def limit(self, quotas: Quotas) -> bool:
        return self.at_work().limit(quotas)

    async def quota_usage(self, names: Sequence[str]) -> dict[str, QuotaUsage]:
        kept = self.at_work().quota_usage
        return {name: kept[name] for name in names if name in kept}

    async def now_ms(self) -> int:
        return self.at_work().now

    async def check(self) -> None:
        self.at_work()

    async def diagnose(self) -> list[Finding]:
        self.at_work()
        return []

    async def aclose(self) -> None:
        self._is_closed = True

    def _catalogue(self) -> tuple[CatalogueModel, int]:
        model = self.at_work()
        return model.catalogue, model.now

    def _at_bulks(self) -> BulksAtWork:
        model = self.at_work()
        return BulksAtWork(model.bulks, model.now, model.identity.note)

    def _remembering(self) -> HistoryAtWork:
        model = self.at_work()
        return HistoryAtWork(model.history, model.now, model.under_way, model.identity.note)

    def _seen(self, connection: Any) -> JobModel:
        model = self.at_work()
        return model if connection is None else self._transactions.seen(connection)

    def at_work(self) -> JobModel:
        """The model, at the clock's time.

        Raises:
            StoreUnavailable: the store is closed or not reachable.
        """
        if self._is_closed or not self.is_reachable:
            raise StoreUnavailable(f"{_ADDRESS} is {'closed' if self._is_closed else 'not reachable'}")
        return self._now()

    def _now(self) -> JobModel:
        # One that was read never goes back, as in a database.
        self.model.now = max(self.model.now, self.clock.now_ms())
        return self.model


class _MemoryDispatch:
    """The `DispatchStore` of a `MemoryJobStore`."""

    def __init__(self, store: MemoryJobStore) -> None:
        self._store = store
        self._leases = _MemoryPartitionLeases(store)

    @property
    def partitions(self) -> int:
        return self._store.model.partitions

    @property
    def leases(self) -> "_MemoryPartitionLeases":
        return self._leases

    def partition_of(self, queue: str) -> int:
        return self._store.model.partition_of(queue)

    async def lanes(self, partition: int) -> list[Lane]:
        return self._store.at_work().lanes(partition)

    async def heads(self, queues: Sequence[str]) -> dict[Lane, LaneHead]:
        return self._store.at_work().heads(queues)

    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        return self._store.at_work().dispatch(partition, epoch, picks)

    async def dispatch_within(
        self, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
    ) -> DispatchBatch | None:
        return _dispatch_within(self._store.at_work(), partition, epoch, picks, quotas)

    async def look(self, picks: Sequence[Pick]) -> list[ReadyJob]:
        return look(self._store.at_work(), picks)

    async def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        put_behind(self._store.at_work(), partition, epoch, gates)

    async def open_gates(
        self, partition: int, epoch: int, gates: Mapping[str, int] | None = None
    ) -> list[tuple[str, Lane]]:
        return open_gates(self._store.at_work(), partition, epoch, gates)

    async def gate_of(self, job_id: str) -> str:
        return self._store.at_work().gates.get(job_id, "")

    async def confirm(self, batches: Sequence[int]) -> None:
        self._store.at_work().confirm(batches)

    async def forget(self, batches: Sequence[int]) -> None:
        self._store.at_work().forget(batches)

    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        return self._store.at_work().undispatch(partition, epoch, jobs, delay=delay, reason=reason)

    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        return self._store.at_work().fail(partition, epoch, jobs, reason=reason, also_running=also_running)

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        return self._store.at_work().take_over(partition, epoch)

    async def report_keys(self) -> list[ReportKey]:
        return list(self._store.at_work().report_keys)

    async def rotate_report_key(self, *, forgets: bool = False, audit: AuditEntry | None = None) -> str:
        model = self._store.at_work()
        if forgets:
            model.report_keys.clear()
        model.report_keys.insert(0, new_report_key(secrets.token_bytes(35)))
        if audit is not None:
            model.identity.note(model.now, [audit])
        return model.report_keys[0].id

    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        return self._store.at_work().apply(reports, came_by=came_by)

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        return self._store.at_work().due(partition, until=until, limit=limit)

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        return self._store.at_work().fire(partition, epoch, jobs)

    async def release_dependents(self, *, limit: int = 500) -> Released:
        return self._store.at_work().release_dependents(limit=limit)

    async def in_flight(self, partition: int, *, dispatched_before: int) -> list[JobRecord]:
        return self._store.at_work().in_flight(partition, dispatched_before=dispatched_before)

    async def maintain(self, *, forgets: bool = True) -> None:
        del forgets  # It keeps them for ever.
        self._store.at_work().drop_usage()


class _MemorySchedules:
    """The `JobScheduleStore` of a `MemoryJobStore`."""

    def __init__(self, store: MemoryJobStore) -> None:
        self._store = store

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        return self._store.at_work().schedules.find(app, names)

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        schedules = self._store.at_work().schedules
        return schedules.list(app, after=after, limit=limit, prefix=prefix, only_code=only_code)

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        return self._store.at_work().schedules.write(changes)

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        model = self._store.at_work()
        return model.schedules.due(partition, partitions=model.partitions, until=until, limit=limit)

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        return self._store.at_work().schedules.load(ids)

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        known = self._store.at_work().jobs
        return {job_id for job_id in jobs if job_id in known and known[job_id].state not in TERMINAL}

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        model = self._store.at_work()
        if not model.leases.has(partition_key(partition), epoch):
            return None
        new = model.schedules.new_jobs(firings)
        if taken := {each for each, job in new.items() if model.is_taken(job)}:
            raise OccurrenceConflict(frozenset(taken))
        fired = model.schedules.fire(firings, now=model.now)
        for job in new.values():
            model.occur(job)
        return fired

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        return self._store.at_work().schedules.occurrences(schedule, before=before, limit=limit)


class _MemoryPartitionLeases:
    """The `Coordinator` of a `MemoryJobStore`."""

    def __init__(self, store: MemoryJobStore) -> None:
        self._store = store

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        model = self._at_work()
        return model.leases.acquire(key, owner=owner, seconds=seconds, note=note, now=model.now)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        model = self._at_work()
        return model.leases.renew(key, token=token, seconds=seconds, note=note, now=model.now)

    async def release(self, key: str, *, token: int) -> None:
        self._at_work().leases.release(key, token=token)

    async def find(self, key: str) -> Lease | None:
        model = self._at_work()
        return model.leases.find(key, now=model.now)

    async def members(self, group: str) -> dict[str, Lease]:
        model = self._at_work()
        return model.leases.members(group, now=model.now)

    def _at_work(self) -> JobModel:
        try:
            return self._store.at_work()
        except StoreUnavailable as error:
            raise StateUnavailable(str(error)) from error


def retry(model: JobModel, job: NewJob, update: JobUpdate) -> Submitted | None:
    """Carry out `JobStore.retry`."""
    ended = model.jobs.get(update.id)
    if ended is None or (ended.state, ended.version) != (update.before, update.version):
        return None
    if ended.state not in TERMINAL:
        return None
    (answer,) = model.submit([job])
    if answer.is_new:
        marked = replace(ended, version=ended.version + 1, retried_as=job.id)
        model.jobs[ended.id] = marked
        model.note(marked, update.kind, by=update.by, note=update.note)
        if update.audit is not None:
            model.identity.note(model.now, [update.audit])
    return answer


def _dispatch_within(
    model: JobModel, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
) -> DispatchBatch | None:
    """What `DispatchStore.dispatch_within` does."""
    if not model.leases.has(partition_key(partition), epoch):
        return None
    running = Counter((job.tenant, _owner_of(job)) for job in model.jobs.in_state(*UNDERWAY))
    book = RunBook(quotas, usage=model.quota_usage, running=running, now=model.now)
    chosen: list[JobRecord] = []
    depths = looked_at(quotas, [(pick.lane.tenant, pick.count) for pick in picks])
    for pick, depth in zip(picks, depths, strict=True):
        left = pick.count
        for job in model.ready(pick.lane)[:depth]:
            is_over = job.expires is not None and job.expires <= model.now
            if left > 0 and (is_over or book.admit(tenant=job.tenant, user=_owner_of(job))):
                left -= 1
                chosen.append(job)
    model.quota_usage |= book.changed
    return model.hand_out(partition, epoch, chosen)


def _owner_of(job: JobRecord) -> str:
    return "" if job.detail is None else job.detail.owner
