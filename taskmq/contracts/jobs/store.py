"""What an app, an operator or a server does with jobs.

Every method raises `StoreUnavailable` when the store cannot be reached, and `StoreMismatch` when its tables are not
those that the adapter works with. The store's clock decides what is due. Ids that are no UUID are unknown ones.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from taskmq.contracts.finding import Finding
from taskmq.contracts.identity import IdentityStore
from taskmq.contracts.jobs.bulks import BulkStore
from taskmq.contracts.jobs.dispatch import DispatchStore
from taskmq.contracts.jobs.nodes import NodeStore
from taskmq.contracts.jobs.records import (
    AttemptRecord,
    HistoryEntry,
    JobAction,
    JobPage,
    JobRecord,
    JobUpdate,
    NewJob,
    Submitted,
)
from taskmq.contracts.jobs.schedules import JobScheduleStore
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import EVERYTHING, JobFilter
from taskmq.model.jobs.pools import Sharing
from taskmq.model.jobs.quotas import Quotas, QuotaUsage

__all__ = ["JobStore", "Upgradable"]


class JobStore(Protocol):
    """Jobs. Belongs to one event loop, like a state, and connects on first use."""

    @property
    def address(self) -> str:
        """The URL without its password."""
        ...

    @property
    def dispatching(self) -> DispatchStore:
        """What schedulers do with the same jobs."""
        ...

    @property
    def identity(self) -> IdentityStore:
        """Who may do what with them, and the audit."""
        ...

    @property
    def bulks(self) -> BulkStore:
        """What is done to many of them."""
        ...

    @property
    def schedules(self) -> JobScheduleStore:
        """The schedules whose occurrences become jobs."""
        ...

    @property
    def nodes(self) -> NodeStore:
        """The machines that jobs are placed on, and what is allocated of them."""
        ...

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        """Keep the jobs, all of them in one transaction; what became of each, in their order.

        A job whose key the tenant has used before is not made anew, also where both are in one call; nor is one whose
        id a job has that still lives, as when a submission is tried again whose answer was lost.

        Of a job with a unique key the store finds out, in the same transaction and one after the other, whether the
        key is free (`taskmq.model.jobs.uniqueness`). Where it is taken, nothing is made. One that replaces another
        ends it as cancelled, or, where the broker has that one already, asks for its end; in any case it has the key
        from then on.

        Of a tenant or an owner that has quotas (`taskmq.model.jobs.quotas`) no job is made beyond them: whether there
        is room is found out in the same transaction, one submission of theirs after the other; those of others wait
        for no job. Quotas that were just changed may hold a second later.

        A job with `depends_on` waits until those have ended as they are to; they are there already, or in this call,
        in any place. One that ends in the same moment has ended before, or is waited for: none is missed. Where one
        is unknown, another tenant's, or waits itself for the job, the job is refused, and the others are kept.

        Args:
            connection: of the caller's own transaction, which commits them; without one they are durable when this
                returns.
        """
        ...

    async def get(self, job_id: str, *, connection: Any = None) -> JobRecord | None:
        """The job, live or ended, with its body and result; None where there is none (any more).

        Args:
            connection: of the caller's own transaction, as `submit` takes it: its jobs are found before it commits.
        """
        ...

    async def find_key(self, tenant: str, key: str, *, connection: Any = None) -> str | None:
        """The id of the job that the tenant's submitter has called so; `connection` as for `get`."""
        ...

    async def list_jobs(self, which: JobFilter = EVERYTHING, *, after: str | None = None, limit: int = 50) -> JobPage:
        """Up to `limit` jobs, the newest first, from behind the cursor `after`."""
        ...

    async def count_jobs(self, which: JobFilter = EVERYTHING, *, cap: int = 10_000) -> int:
        """How many there are; `cap` + 1 where there are more than `cap`, or where it was not worth to look on."""
        ...

    async def update(self, update: JobUpdate) -> JobRecord | None:
        """Change one live job, and write down the event; the job afterwards, as `get` returns it.

        A terminal `after` ends it. A job that waits for others does not run before they have ended: where `after`
        says that it is queued or scheduled, it is waiting.

        A `retry` whose `after` is queued lets a job go on that has ended in one of `RESUMABLE`: under its id, with
        `due` and `body` as they are given, and without its request to end and its time to expire. It keeps its token,
        so that reports of the dispatch before change nothing. Where it was dispatched, its next attempt begins: the
        one before is kept among its attempts, and so is the error where it has failed. It waits for `depends_on`
        first.

        None, and nothing is changed, where it is not in that
        state and version, or where `after` is another state that may not follow it (`taskmq.model.states`).
        """
        ...

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        """Keep a job that repeats one which has ended, and note there that it was retried, in one transaction.

        So of several who retry one job at the same time, knowing its version, one does.

        Args:
            job: as for `submit`, which says what may become of it.
            update: of the job that has ended: `after` is `before`, and no field is set. Its version grows, it has the
                event, and `retried_as` is the new job's id. Where that one was there before, or was not kept, nothing
                is changed.

        Returns:
            None where the job that is to be repeated is not in that state and version; nothing was kept then.
        """
        ...

    async def events(self, job_id: str) -> list[HistoryEntry]:
        """What happened to the job beside the ordinary steps, the earliest first."""
        ...

    async def actions(self, since: int, *, limit: int) -> list[JobAction]:
        """The last `limit` entries of `events` of all jobs from `since` (ms, by the store's clock) on.

        The earliest first. One whose transaction takes long is there once it is committed, under the time at which it
        was written: behind later ones.
        """
        ...

    async def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Its attempts that did not end it, the earliest first."""
        ...

    async def unmet(self, job_id: str, *, limit: int = 50) -> list[JobDependency]:
        """Up to `limit` of the jobs that it waits for still, in the order of their ids."""
        ...

    async def sharing(self) -> Sharing:
        """What operators have said about policies and pools."""
        ...

    async def share(self, sharing: Sharing) -> bool:
        """Say it instead of what there is; False, and nothing is changed, where that is not one version older."""
        ...

    async def quotas(self) -> Quotas:
        """What operators have said about quotas."""
        ...

    async def limit(self, quotas: Quotas) -> bool:
        """Say it instead of what there is; False, and nothing is changed, where that is not one version older."""
        ...

    async def quota_usage(self, names: Sequence[str]) -> dict[str, QuotaUsage]:
        """What was submitted of late under the quotas of these names (`taskmq.model.jobs.quotas.usage_name`)."""
        ...

    async def now_ms(self) -> int:
        """The store's clock, ms since the epoch."""
        ...

    async def check(self) -> None:
        """See whether the tables are those that this adapter works with.

        Raises:
            StoreMismatch: they are behind or ahead; the message says what to do.
        """
        ...

    async def diagnose(self) -> list[Finding]:
        """What is wrong with the database, or may soon be."""
        ...

    async def aclose(self) -> None:
        """Let go. May be called twice."""
        ...


@runtime_checkable
class Upgradable(Protocol):
    """A job store whose tables are made, and changed from version to version."""

    async def current(self) -> str | None:
        """The version of its tables; None where there are none.

        Raises:
            StoreUnavailable: it could not be reached.
        """
        ...

    async def upgrade(self) -> None:
        """Make the tables, or bring them to the version that this adapter works with; all of it, or nothing.

        Several may do so at a time. Jobs that are there stay.

        Raises:
            StoreMismatch: they are of a later version.
            StoreUnavailable: it could not be reached.
        """
        ...
