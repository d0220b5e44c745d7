"""Operations of apps, operators and servers on stored jobs.

Every method raises `StoreUnavailable` if the store cannot be reached, and `StoreMismatch` if its tables are not those
of the adapter. The store's clock decides when a job is due. Ids that are not UUIDs are unknown.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from taskmq.contracts.finding import Finding
from taskmq.contracts.identity import IdentityStore
from taskmq.contracts.jobs.bulks import BulkStore
from taskmq.contracts.jobs.dispatch.store import DispatchStore
from taskmq.contracts.jobs.journals import JournalStore
from taskmq.contracts.jobs.nodes import NodeStore
from taskmq.contracts.jobs.records import (
    AttemptRecord,
    HistoryEntry,
    JobAction,
    JobPage,
    JobRecord,
    JobUpdate,
    NewJob,
    StateCounts,
    Submitted,
)
from taskmq.contracts.jobs.runs import RunStore
from taskmq.contracts.jobs.schedules import JobScheduleStore
from taskmq.model.commands import QueuePause
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.pools import Sharing
from taskmq.model.jobs.quotas import Quotas, QuotaUsage


class PauseStore(Protocol):
    """Paused queues by name; a pause lasts until it is ended.

    Every method raises `StateUnavailable` or `StoreUnavailable` if the store cannot be reached; a change may have
    happened all the same.
    """

    async def queue_pauses(self) -> dict[str, QueuePause]:
        """Return the pauses of all paused queues."""
        ...

    async def pause_queue(self, queue: str, pause: QueuePause) -> QueuePause:
        """Pause a queue; return its pause. If it is paused already, the pause keeps its instant."""
        ...

    async def resume_queue(self, queue: str) -> bool:
        """End the pause of a queue; return whether it was paused."""
        ...


class JobStore(PauseStore, Protocol):
    """Jobs. Belongs to one event loop, like a state, and connects on first use."""

    @property
    def address(self) -> str:
        """URL without its password."""
        ...

    @property
    def dispatching(self) -> DispatchStore:
        """Operations of schedulers on the same jobs."""
        ...

    @property
    def identity(self) -> IdentityStore:
        """Users with their permissions, and the audit."""
        ...

    @property
    def bulks(self) -> BulkStore:
        """Bulk operations on the jobs."""
        ...

    @property
    def journals(self) -> JournalStore:
        """Progress and saved values of the jobs' runs."""
        ...

    @property
    def schedules(self) -> JobScheduleStore:
        """The schedules whose occurrences become jobs."""
        ...

    @property
    def nodes(self) -> NodeStore:
        """The machines that jobs are placed on, and what is allocated of them."""
        ...

    @property
    def runs(self) -> RunStore:
        """Workflows, and runs whose steps are jobs."""
        ...

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        """Store the jobs in one transaction; return the result of each, in order.

        A job whose key the tenant has used before is not created again, even if both are in one call. Nor is a job
        whose id a live job has, for example when a submission without an answer is repeated.

        For a job with a unique key the store checks, in the same transaction and one after the other, whether the key
        is free (`taskmq.model.jobs.uniqueness`). If it is taken, nothing is created. A job that replaces another one
        ends it as cancelled, or, if it is at the broker already, requests its cancellation; in any case the new job
        has the key from then on.

        For a tenant or an owner with quotas (`taskmq.model.jobs.quotas`) no job is created beyond them. The room is
        checked in the same transaction, one submission of theirs after the other; other submissions never wait for
        that. Quotas that were just changed may apply a second later.

        A job with `depends_on` waits until those jobs have ended as required. They exist already, or are in this
        call, in any position. A concurrent end counts as an earlier one or is awaited: none is missed. If one of them
        is unknown, belongs to another tenant, or itself waits for the job, the job is refused, and the others are
        stored.

        Args:
            connection: of the caller's own transaction, which commits the jobs; without one they are durable when
                this returns.
        """
        ...

    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        """Return the job, live or ended, with its body and result; None if there is none (any more).

        Args:
            connection: of the caller's own transaction, as `submit` takes it: its jobs are found before it commits.
        """
        ...

    async def find_key(self, tenant: str, key: str, *, connection: Any = None) -> str | None:
        """Return the id of the job with this key of the tenant; `connection` as for `get`."""
        ...

    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        """Return up to `limit` jobs, the newest first, after the cursor `after`; none `via` the broker."""
        ...

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        """Count jobs; return `cap` + 1 if there are more than `cap`, or if counting on was not worth it."""
        ...

    async def count_states(self, which: JobFilter = EVERYTHING, *, cap: int = 1_000) -> StateCounts:
        """Count jobs by state; it may stop after it examined `cap` of the live and `cap` of the ended ones."""
        ...

    async def update(self, update: JobUpdate) -> JobRecord | None:
        """Change one live job, and record the event; return the job afterwards, like `get`.

        A terminal `after` ends the job. A job that waits for others does not run before they have ended: if `after`
        is queued or scheduled, it is waiting.

        A `retry` to queued resumes a job that ended in one of `RESUMABLE`: under its id, with the given `due` and
        `body`, and without its cancellation request and its expiry. It keeps its token, so that reports of the
        earlier dispatch change nothing. If it was dispatched, its next attempt begins: the previous one is kept among
        its attempts, with its error if it failed. The job waits for `depends_on` first.

        Jobs that ended because of that end (`skipped`, `upstream_failed`), and those behind them, wait for the new
        run, each with an event `retry`, unless another of their dependencies cannot be met. `reattached` of the
        answer counts them, and so does the audit entry.

        Returns None, and changes nothing, if the job has another state or version, or if `after` may not follow its
        state (`taskmq.model.states`).
        """
        ...

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        """Store a job that repeats an ended one, and record there that it was retried, in one transaction.

        So of several callers that retry one job concurrently, with its version, one succeeds.

        Args:
            job: as for `submit`, with the same possible results.
            update: of the ended job: `after` is `before`, and no field is set. Its version increases, it gets the
                event, and `retried_as` is the new job's id. If the new job existed before, or was not stored, nothing
                is changed.

        Returns:
            None if the ended job has another state or version; nothing was stored then. `reattached` counts the
            dependents that wait for the new job (see `update`).
        """
        ...

    async def events(self, job_id: str) -> list[HistoryEntry]:
        """Return the events of the job beyond the ordinary steps, the earliest first."""
        ...

    async def actions(self, since: int, *, limit: int) -> list[JobAction]:
        """Return the last `limit` entries of `events` of all jobs since `since` (ms, by the store's clock).

        The earliest first. An entry of a long transaction appears once it is committed, with the time at which it was
        written: it may be later than its successors.
        """
        ...

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Return its attempts that did not end it, the earliest first."""
        ...

    async def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        """Return up to `limit` of the jobs that it still waits for, in the order of their ids."""
        ...

    async def sharing(self) -> Sharing:
        """Return the operators' policies and pools."""
        ...

    async def share(self, sharing: Sharing) -> bool:
        """Replace policies and pools; return False, and change nothing, unless the stored are one version older."""
        ...

    async def quotas(self) -> Quotas:
        """Return the operators' quotas."""
        ...

    async def limit(self, quotas: Quotas) -> bool:
        """Replace the quotas; return False, and change nothing, unless the stored ones are one version older."""
        ...

    async def quota_usage(self, names: Sequence[str]) -> dict[str, QuotaUsage]:
        """Return the recent usage of the quotas of these names (`taskmq.model.jobs.quotas.usage_name`)."""
        ...

    async def now_ms(self) -> int:
        """Return the store's clock, ms since the epoch."""
        ...

    async def check(self) -> None:
        """Check that the tables are those of this adapter.

        Raises:
            StoreMismatch: they are behind or ahead; the message says what to do.
        """
        ...

    async def size(self) -> int:
        """Return the bytes of the whole database."""
        ...

    async def diagnose(self) -> list[Finding]:
        """Return present or imminent problems of the database."""
        ...

    async def aclose(self) -> None:
        """Close the connections. May be called twice."""
        ...


@runtime_checkable
class Upgradable(Protocol):
    """A job store whose tables are created, and migrated from version to version."""

    async def current(self) -> str | None:
        """Return the version of its tables; None if there are none.

        Raises:
            StoreUnavailable: it could not be reached.
        """
        ...

    async def upgrade(self) -> None:
        """Create the tables, or migrate them to this adapter's version, completely or not at all.

        Concurrent calls are safe. Existing jobs stay.

        Raises:
            StoreMismatch: they are of a later version.
            StoreUnavailable: it could not be reached.
        """
        ...
