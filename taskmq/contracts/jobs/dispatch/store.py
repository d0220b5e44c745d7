"""The operations of schedulers on the jobs of a store."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from taskmq.contracts.jobs.claims import TakenClaims
from taskmq.contracts.jobs.dispatch.dispatched_jobs import DispatchBatch, DispatchedJob, ReadyJob, ReturnedJob
from taskmq.contracts.jobs.dispatch.lanes import Lane, LaneHead, Pick, QueueBacklog, TenantBacklog, WaitingLane
from taskmq.contracts.jobs.dispatch.outcomes import AppliedReport, DueJob, OpenedClaims, Released, Withdrawn
from taskmq.contracts.jobs.records import JobRecord
from taskmq.contracts.jobs.starts import RatedJob, TakenStarts
from taskmq.contracts.stores.leases import Coordinator
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.proofs import ReportKey
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.reports import Report
from taskmq.model.limits import RateDemand
from taskmq.model.states import JobState


class DispatchStore(Protocol):
    """Operations of schedulers on jobs.

    Queues and timers are divided into partitions. A scheduler dispatches and fires for the partitions whose leases it
    holds (`leases`, `partition_key`; the lease's token is the epoch). A method with an `epoch` does nothing, and
    returns nothing, if the lease of the partition has another holder. A lease that expired and was not acquired since
    still counts; a released one does not.
    """

    @property
    def partitions(self) -> int:
        """Number of partitions of the store."""
        ...

    @property
    def leases(self) -> Coordinator: ...

    def partition_of(self, queue: str) -> int:
        """Return the partition of a queue."""
        ...

    async def lanes(self, partition: int) -> list[Lane]:
        """Return the lanes of the partition with ready jobs."""
        ...

    async def heads(self, queues: Sequence[str]) -> dict[Lane, LaneHead]:
        """Return the first job of each lane of these queues."""
        ...

    async def backlog(self, queues: Sequence[str], *, most: int) -> dict[str, QueueBacklog]:
        """Return the backlogs of these queues, up to `most` jobs each; queues without one are left out."""
        ...

    async def tenant_backlogs(self, *, most: int = 100_000) -> list[TenantBacklog]:
        """Return the backlog of each tenant, the one with the oldest job first.

        Counts up to `most` jobs in lanes, and as many behind gates. If there are more, tenants may be missing.
        """
        ...

    async def count_lanes(self, queue: str, *, most: int = 100_000) -> dict[Lane, int]:
        """Return the number of jobs in each lane of a queue, of up to `most` of its ready jobs."""
        ...

    async def waiting_lanes(self, job: JobRecord, *, rise: int = 0, most: int = 100_000) -> list[WaitingLane]:
        """Return the lanes of a ready job's queue, its own one included; empty if the job is not ready any more.

        `earlier` counts jobs of a lower id among those of one instant. If there are more than `most` jobs, the
        result is empty.

        Args:
            rise: ms of waiting that are worth one priority; 0: priorities do not count.
        """
        ...

    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        """Dispatch the jobs, and record the batch; None if there were none.

        Expired jobs end instead, and count as picked; the batch says how many. A caller without an answer (an
        uncertain `StoreUnavailable`) acquires the partition again: its next holder gets the batch from `take_over`.
        """
        ...

    async def dispatch_within(
        self, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
    ) -> DispatchBatch | None:
        """Dispatch like `dispatch`, within the quotas of tenants whose jobs may have to wait (`Quotas.held_back`).

        Jobs in flight in all queues count, whichever scheduler dispatched them. A job that must wait is passed by
        those behind it whose owners have room, among the first `looked_at`: 500 of its lane, 10,000 of all.
        """
        ...

    async def count_in_flight(self, tenant: str) -> dict[str, int]:
        """Return the number of the tenant's jobs in flight by their owners, as `dispatch_within` counts them."""
        ...

    async def look(self, picks: Sequence[Pick]) -> list[ReadyJob]:
        """Return the first jobs of these lanes, as many as each pick says, in the order of the picks."""
        ...

    async def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        """Move ready jobs from their lanes behind a gate, which is a text that the caller chooses.

        They stay `queued`, and no event is written. A job that is no longer ready stays unchanged; any change or end
        of a waiting job removes it from its gate. Behind the gate of a line, a job without a place gets the last one.

        Args:
            gates: by job id; the jobs are in queues of the partition.
        """
        ...

    async def open_gates(self, partition: int, epoch: int, gates: Mapping[str, int]) -> list[tuple[str, Lane]]:
        """Move the first jobs behind gates of the partition back into their lanes; return the gate and lane of each.

        The higher priority is first, then the earlier due time.

        Args:
            gates: number of jobs of each gate.
        """
        ...

    async def closed_gates(self, partition: int, *, after: str = "") -> list[str]:
        """Return the gates that jobs of the partition wait behind, in order: the first 1,000 after `after`."""
        ...

    async def gate_of(self, job_id: str) -> str:
        """Return the gate that the job waits behind; "" if there is none."""
        ...

    async def take_claims(self, partition: int, epoch: int, jobs: Sequence[DispatchedJob]) -> TakenClaims | None:
        """Take the claims of dispatched jobs: all of a job or none; None if the lease has another holder.

        A job whose claims are held by others is ready again, behind the gate of the first of them; the dispatch does
        not count. A job that holds its claims keeps them, so a caller without an answer may repeat the call.

        Args:
            jobs: jobs of queues of the partition, in the order in which they get the claims.
        """
        ...

    async def open_claims(self, places: Mapping[str, int]) -> OpenedClaims:
        """Move as many jobs from behind the gates of claims into their lanes as claims have free places.

        The higher priority is first, then the earlier due time. There is no epoch: the jobs of all partitions that
        wait for a claim have one order, and `take_claims` decides.

        Args:
            places: the number of places of each claim.
        """
        ...

    async def take_starts(
        self, partition: int, epoch: int, jobs: Sequence[RatedJob], *, lead: float
    ) -> TakenStarts | None:
        """Count the starts of dispatched jobs under their rates, in order; None without the lease of the partition.

        A job without room is ready again, behind the gate of the rate, and no event is written. A rate counts for all
        partitions and their holders. Rates that were not used for a minute are forgotten.

        Args:
            jobs: jobs of queues of the partition.
            lead: seconds that a job takes to reach its worker, at most: a strict start is at least as far ahead.
        """
        ...

    async def rate_waits(self, rates: Sequence[RateDemand], *, lead: float) -> dict[str, float]:
        """Return the seconds until each rate has room, by its key; 0 or less: now."""
        ...

    async def confirm(self, batches: Sequence[int]) -> None:
        """Record that the broker confirmed these batches."""
        ...

    async def forget(self, batches: Sequence[int]) -> None:
        """Delete batches that have no jobs left."""
        ...

    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        """Return jobs that the broker refused: those still `dispatched` are ready again after `delay` seconds.

        Only a job with exactly this token changes, and only before a report of its start: a running job continues,
        and one that ended or was dispatched again stays unchanged. The attempt does not count. Jobs whose
        cancellation was requested end instead.

        Args:
            jobs: jobs of queues of the partition.
        """
        ...

    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        """End jobs that can never run as failed, with an event `ended`: those that `undispatch` would return.

        Args:
            jobs: jobs of queues of the partition.
            also_running: include jobs that a worker started, which is gone.
        """
        ...

    async def dispatch_again(self, partition: int, epoch: int, jobs: Sequence[ReturnedJob]) -> DispatchBatch | None:
        """Record another batch with jobs under way, which keep their tokens; None if there were none.

        The jobs are `dispatched`, and `crashes` is added to theirs, which each new dispatch clears. A job whose run
        had begun, or whose worker died, gets an event `interrupted`. A job with another token stays unchanged, and so
        does one that ended, or whose cancellation was requested. Later calls of `take_over` return these jobs with
        this batch only.

        Args:
            jobs: jobs of queues of the partition.
        """
        ...

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        """Take over the batches of the partition's earlier holders that have jobs in flight.

        They belong to this epoch from then on, and a second call with it does not return them again. A caller without
        an answer (an uncertain `StoreUnavailable`) acquires the partition again, under the next epoch.
        """
        ...

    async def report_keys(self) -> list[ReportKey]:
        """Return the keys of proofs, the newest first. The first key is created with the tables."""
        ...

    async def rotate_report_key(self, *, forgets: bool = False, audit: AuditEntry | None = None) -> str:
        """Create a new key that proves new dispatches from now on; return its id, which is not secret.

        Proofs by older keys stay valid, unless the store forgets those keys: then an end counts only if the store
        knows its dispatch.
        """
        ...

    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        """Apply the reports in one transaction; return the effect of each, in order.

        There is no epoch: the token decides, whichever scheduler applies the report. Several reports of one job in
        one call apply in order.

        A store that was restored from a backup does not know later dispatches. An end of such a dispatch counts if
        its proof is genuine: with an event `unknown_attempt`, and an audit entry (`forgotten_end`). Other reports of
        such a dispatch only add the event, and so do those without a proof, which are `invented`
        (`taskmq.model.jobs.tokens`). A job has at most `MOST_UNHEEDED` events of reports that changed nothing.

        `started` counts for a running job, too: its message was redelivered, perhaps to another worker. An
        `interrupted` job is ready immediately; its `due` stays, or is now. The reason of an interruption
        (`interruption_of`) is an event, and not an error of the job. A run that began under a token of an earlier run
        (`ran_again`) adds an event, too. `detached` and `alive` are starts as well, and the store records `detached`
        as an event.

        Args:
            came_by: the reports queue that they came from: a proof is valid only for the queue of its invitation.
        """
        ...

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        """Return up to `limit` jobs of the partition's timers that are due before `until` (ms), in order."""
        ...

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        """Queue due jobs that still wait for their time; return the lanes that got any.

        A job that was changed or cancelled since it was read stays unchanged. One of several concurrent calls may
        return the lanes of all.
        """
        ...

    async def release_dependents(self, *, limit: int = 500) -> Released:
        """Apply ends of jobs to their dependents: up to `limit` dependencies, in one transaction.

        The end of a job with dependents is recorded with the end itself, and is processed here, in the order of those
        ends; a caller that dies before the commit has done nothing. A waiting job whose dependencies are all met is
        due now, or at its own due time; a held one stays held. A job with a dependency that can never be met ends
        (`taskmq.model.jobs.dependencies`), with an event `ended`, and so, later, do its dependents. There is no
        epoch: any number of schedulers may call this concurrently, and they share the work.
        """
        ...

    async def in_flight(self, partition: int, *, dispatched_before: int) -> list[JobRecord]:
        """Return jobs in flight of the partition's queues, dispatched before an instant (ms), without bodies."""
        ...

    async def maintain(self, *, forgets: bool = True) -> None:
        """Prepare for the days to come, and delete what was kept long enough; any process may call this.

        Args:
            forgets: False: ended jobs stay, whatever their age.
        """
        ...


def forgotten_end(report: Report, state: JobState, tenant: str) -> AuditEntry:
    """Return the audit entry for a job that ended by a dispatch unknown to its store."""
    return AuditEntry(
        action="job.end",
        kind="job",
        subject=report.id,
        tenant=tenant,
        user=report.worker,
        via="report",
        after={"state": str(state), "attempt": report.attempt},
        note="its dispatch was forgotten, and the report has a proof of it",
    )
