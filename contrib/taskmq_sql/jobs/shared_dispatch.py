"""The calls of a `DispatchStore` that both databases answer by the same statements."""

from collections.abc import Callable, Mapping, Sequence

from taskmq.contracts.jobs import (
    DispatchedJob,
    JobRecord,
    Lane,
    OpenedClaims,
    QueueBacklog,
    RatedJob,
    TakenClaims,
    TakenStarts,
    TenantBacklog,
    WaitingLane,
)
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.proofs import ReportKey
from taskmq.model.limits import RateDemand
from taskmq_sql.jobs.backlogs import SqlBacklogs
from taskmq_sql.jobs.claims import SqlClaims
from taskmq_sql.jobs.rates import SqlRates
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.leases import SqlLeases
from taskmq_sql.report_keys import SqlReportKeys
from taskmq_sql.steps import Runner


class SharedDispatch:
    """Leases, claims, rates, backlogs and keys of reports.

    Args:
        dispatches: runs what belongs to a dispatch.
        reads: runs what may be slow.
        leases: leases of partitions, which must not wait for others.
        partition_of: returns the partition of a queue.
    """

    def __init__(
        self, dispatches: Runner, reads: Runner, *, leases: Runner, partition_of: Callable[[str], int]
    ) -> None:
        self._claims = SqlClaims(dispatches)
        self._rates = SqlRates(dispatches)
        self._backlogs = SqlBacklogs(reads, partition_of)
        self._leases = SqlLeases(leases)
        self._keys = SqlReportKeys(reads)
        self._partition_of = partition_of

    @property
    def leases(self) -> SqlLeases:
        return self._leases

    def partition_of(self, queue: str) -> int:
        return self._partition_of(queue)

    async def backlog(self, queues: Sequence[str], *, most: int) -> dict[str, QueueBacklog]:
        return await self._backlogs.read(queues, most)

    async def tenant_backlogs(self, *, most: int = 100_000) -> list[TenantBacklog]:
        return await self._backlogs.read_tenants(most)

    async def count_lanes(self, queue: str, *, most: int = 100_000) -> dict[Lane, int]:
        return await self._backlogs.count_lanes(queue, most)

    async def waiting_lanes(self, job: JobRecord, *, rise: int = 0, most: int = 100_000) -> list[WaitingLane]:
        return await self._backlogs.read_lanes(job, rise, most)

    async def take_claims(self, partition: int, epoch: int, jobs: Sequence[DispatchedJob]) -> TakenClaims | None:
        return await self._claims.take(partition, epoch, jobs)

    async def open_claims(self, places: Mapping[str, int]) -> OpenedClaims:
        return await self._claims.open(places)

    async def closed_gates(self, partition: int, *, after: str = "") -> list[str]:
        return await self._claims.closed_gates(partition, after)

    async def take_starts(
        self, partition: int, epoch: int, jobs: Sequence[RatedJob], *, lead: float
    ) -> TakenStarts | None:
        return await self._rates.take(partition, epoch, [job for job in jobs if is_job_id(job.id)], lead=lead)

    async def rate_waits(self, rates: Sequence[RateDemand], *, lead: float) -> dict[str, float]:
        return await self._rates.waits(rates, lead=lead)

    async def report_keys(self) -> list[ReportKey]:
        return await self._keys.read()

    async def rotate_report_key(self, *, forgets: bool = False, audit: AuditEntry | None = None) -> str:
        return await self._keys.rotate(forgets=forgets, audit=audit)
