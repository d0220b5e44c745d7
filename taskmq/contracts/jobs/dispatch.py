"""What schedulers do with the jobs of a store.

lanes -> dispatch -> publish -> confirm -> ... reports -> apply -> forget
|  refused: undispatch, or fail; what runs goes on
look -> put_behind gates -> open_gates -> lanes
due -> fire -> lanes
take_over: what an earlier holder of the partition has dispatched
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, Protocol

import msgspec

from taskmq.contracts.jobs.records import JobRecord
from taskmq.contracts.stores.leases import Coordinator
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.proofs import ReportKey
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState

__all__ = [
    "PARTITIONS",
    "AppliedReport",
    "DispatchBatch",
    "DispatchStore",
    "DispatchedJob",
    "DueJob",
    "Lane",
    "LaneHead",
    "Pick",
    "ReadyJob",
    "Released",
    "Withdrawn",
    "forgotten_end",
    "partition_of",
]

PARTITIONS: Final = 8
"""Into so many partitions queues and timers are divided, unless the store was made with another number (up to 64)."""

_QUEUES: Final = 4096


def partition_of(queue: str, partitions: int = PARTITIONS) -> int:
    """The partition of a queue, of so many."""
    return _hash_of(queue) % partitions


@lru_cache(_QUEUES)
def _hash_of(queue: str) -> int:
    return int.from_bytes(hashlib.sha256(queue.encode()).digest()[:8])


class Lane(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Jobs of one queue, priority and tenant that are ready; among them the earliest due goes first."""

    queue: str
    priority: int
    tenant: str


class LaneHead(msgspec.Struct, frozen=True):
    """The first job of a lane: since when it is due, and when it expires, ms since the epoch; None: never."""

    due: int
    expires: int | None = None


class Pick(msgspec.Struct, frozen=True):
    """So many jobs of a lane are to be dispatched."""

    lane: Lane
    count: int


class ReadyJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is ready, as a look at its lane shows it.

    Attributes:
        body: as it is to be sent; empty where it is too large to be read with others.
        is_over: it has expired, and ends when it is dispatched.
    """

    id: str
    lane: Lane
    task: str
    body: bytes
    is_over: bool = False


class DispatchedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was handed out and is to be published.

    Attributes:
        token: of this dispatch; a report counts with it only.
        node: the host node that it was placed on; "": any worker of its queue may have it.
        due: when it was to run, ms since the epoch; None where an earlier run of it has begun.
        outages: how many outages have interrupted runs of this attempt.
        owner: who submitted it; "": unknown.
    """

    id: str
    key: str | None
    tenant: str
    task: str
    queue: str
    priority: int
    attempt: int
    token: int
    expires: int | None
    body: bytes
    node: str = ""
    due: int | None = None
    outages: int = 0
    owner: str = ""


class DispatchBatch(msgspec.Struct, frozen=True):
    """Jobs that were dispatched together.

    Attributes:
        confirmed: the broker has confirmed them.
        jobs: those that still have the token of the batch.
    """

    id: int
    confirmed: bool
    jobs: list[DispatchedJob]


class AppliedReport(msgspec.Struct, frozen=True, gc=False):
    """What a report came to.

    Attributes:
        outcome: `accepted`; `superseded`: of an earlier dispatch, or the job has ended; `invented`: of a dispatch
            that the store has no memory of, without a proof that there was one; `unknown`: the store has no such job.
        state: the job's afterwards; None where it is unknown.
        queue: the job's.
        has_dependents: it has ended, and others wait, or waited, for that: `release_dependents` has something to do.
    """

    outcome: Literal["accepted", "superseded", "invented", "unknown"]
    state: JobState | None = None
    queue: str = ""
    has_dependents: bool = False


class Withdrawn(msgspec.Struct, frozen=True):
    """What became of dispatched jobs that a scheduler has taken back, or ended.

    A job in neither set is as it was: it has ended, it was dispatched again, or the partition has passed on.

    Attributes:
        ids: those that were taken back, or have ended.
        running: those that a worker has started under the same token: they go on, and their reports will come.
    """

    ids: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()


class Released(msgspec.Struct, frozen=True):
    """What ends of jobs have come to, for those that waited for them.

    Attributes:
        queues: those that have got jobs which are ready.
        is_more: there is more to do at once.
    """

    queues: frozenset[str] = frozenset()
    is_more: bool = False


class DueJob(msgspec.Struct, frozen=True, order=True):
    """A job that waits for its time: when that is, ms since the epoch, and what `DispatchStore.fire` needs."""

    due: int
    id: str
    shard: int


class DispatchStore(Protocol):
    """What schedulers do with jobs.

    Queues and timers are divided into partitions, and a scheduler dispatches and fires for the partitions whose
    leases it holds (`leases`, `partition_key`; the lease's token is the epoch). What takes an `epoch` does nothing at
    all where the lease
    of the partition has passed on: then it returns nothing. One that has ended and that was not taken since has not
    passed on; one that was released has.
    """

    @property
    def partitions(self) -> int:
        """Into how many partitions the store is divided."""
        ...

    @property
    def leases(self) -> Coordinator: ...

    def partition_of(self, queue: str) -> int:
        """The partition of a queue."""
        ...

    async def lanes(self, partition: int) -> list[Lane]:
        """The lanes of the partition that have jobs which are ready."""
        ...

    async def heads(self, queues: Sequence[str]) -> dict[Lane, LaneHead]:
        """The first job of each lane of these queues."""
        ...

    async def dispatch(self, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
        """Take the jobs, and write down the batch; None where none was to be had.

        Expired ones end instead, and count as taken. Who did not get the answer (`StoreUnavailable` that is not
        certain) takes the partition anew: its next holder is given the batch by `take_over`.
        """
        ...

    async def dispatch_within(
        self, partition: int, epoch: int, picks: Sequence[Pick], quotas: Quotas
    ) -> DispatchBatch | None:
        """`dispatch` of tenants whose quotas let jobs wait (`Quotas.held_back`): of each no more than these let go.

        Counted is what is under way in all queues, whichever scheduler dispatches. A job that has to wait is passed
        by those behind it whose owners have room, among the first that are `looked_at`: 500 of its lane, 10,000 of
        all.
        """
        ...

    async def look(self, picks: Sequence[Pick]) -> list[ReadyJob]:
        """The first jobs of these lanes, as many of each as the pick says, in the order of the picks."""
        ...

    async def put_behind(self, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
        """Take jobs that are ready out of their lanes: each waits behind a gate, which is a text of the caller's.

        They stay `queued`, and no event is written. A job that is not ready any more is left as it is; whatever
        changes one that waits, or ends it, takes it from behind its gate.

        Args:
            gates: by the ids of the jobs, which are in queues of the partition.
        """
        ...

    async def open_gates(
        self, partition: int, epoch: int, gates: Mapping[str, int] | None = None
    ) -> list[tuple[str, Lane]]:
        """Put the first jobs behind gates of the partition back into their lanes; the gate and the lane of each.

        The higher priority is first, then the earlier due.

        Args:
            gates: how many jobs behind each; None: up to 500 jobs of the partition, behind any.
        """
        ...

    async def gate_of(self, job_id: str) -> str:
        """The gate behind which the job waits; "" where it waits behind none."""
        ...

    async def confirm(self, batches: Sequence[int]) -> None:
        """The broker has confirmed these batches."""
        ...

    async def forget(self, batches: Sequence[int]) -> None:
        """All jobs of these batches have left them."""
        ...

    async def undispatch(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, delay: float = 0.0, reason: str = ""
    ) -> Withdrawn:
        """The broker has not taken them: those that are still `dispatched` are ready again, after `delay` seconds.

        Only a job that has this very token is touched, and only before a report of its start has counted: one that
        runs goes on, and one that has ended or was dispatched again stays as it is. The attempt is not counted.
        Where their cancellation was asked for, they end instead.

        Args:
            jobs: of queues of the partition.
        """
        ...

    async def fail(
        self, partition: int, epoch: int, jobs: Sequence[DispatchedJob], *, reason: str, also_running: bool = False
    ) -> Withdrawn:
        """They can never be run: those that `undispatch` would take back end as failed, with an event `ended`.

        Args:
            jobs: of queues of the partition.
            also_running: and those that a worker has started, which is gone.
        """
        ...

    async def take_over(self, partition: int, epoch: int) -> list[DispatchBatch]:
        """What the partition's earlier holders have left: every batch of which jobs are under way.

        They are this epoch's from then on, and a second call with it does not give them again: who did not get the
        answer (`StoreUnavailable` that is not certain) takes the partition anew, under the next epoch.
        """
        ...

    async def report_keys(self) -> list[ReportKey]:
        """The keys of proofs, the newest first. There is one from the beginning: what makes the tables makes it."""
        ...

    async def rotate_report_key(self, *, forgets: bool = False, audit: AuditEntry | None = None) -> str:
        """Make a new key, by which new dispatches are proven from now on; its id, which is no secret.

        Proofs by older keys stay good, unless the store forgets those: then an end counts only where the store
        remembers its dispatch.
        """
        ...

    async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        """Let the reports count, all of them in one transaction; what each came to, in their order.

        No epoch: the token decides, whichever scheduler applies it. An end of a later dispatch than the store knows
        of (it was restored from a backup) counts, too, where its proof is by one of the store's keys: with an event
        `unknown_attempt`, and an entry of the audit (`forgotten_end`). Other reports of such a dispatch get the event
        alone, and so do those without a proof, which are `invented` (`taskmq.model.jobs.tokens`). Of events of
        reports that change nothing a job has `MOST_UNHEEDED`. Several reports of one job in one call count in their
        order. `started` counts for a job that runs already, too: its message was delivered again, to another worker
        perhaps. An `interrupted` job is ready at once, and its `due` is what it was, or now. Why a run was
        interrupted (`interruption_of`) is an event, and no error of the job. There is one, too, if a run began under
        a token by which another one had begun (`ran_again`). `detached` and `alive` are starts as well, and the store
        remembers a `detached` one as an event.

        Args:
            came_by: the reports queue by which they came: a proof is good for the queue of its invitation alone.
        """
        ...

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueJob]:
        """Up to `limit` jobs of the partition's timers that are due before `until` (ms), the first first."""
        ...

    async def fire(self, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
        """Their time has come: those that still wait for it are queued; the lanes that have got any.

        One that was changed or cancelled since it was read stays as it is. Of calls that are made at a time, one may
        return the lanes of all.
        """
        ...

    async def release_dependents(self, *, limit: int = 500) -> Released:
        """Let jobs have ended for those that wait for them: up to `limit` dependencies, in one transaction.

        The end of a job that others wait for is written down with the end itself, and is done with here, in the order
        of those ends; a caller that dies before the commit has done nothing. A waiting job of which all dependencies
        are met is due now, or when it was to be; a held one stays held. One of which a dependency never will be met
        ends (`taskmq.model.jobs.dependencies`), with an event `ended`, and so, later, do those that wait for it. No
        epoch: any number of schedulers may do so at a time, and they share the work.
        """
        ...

    async def in_flight(self, partition: int, *, dispatched_before: int) -> list[JobRecord]:
        """Jobs of the partition's queues under way, dispatched before an instant (ms), without their bodies."""
        ...

    async def maintain(self, *, forgets: bool = True) -> None:
        """Make room for the days to come, and drop what has been kept for long enough; any process may.

        Args:
            forgets: False: jobs that have ended stay, however old they are.
        """
        ...


def forgotten_end(report: Report, state: JobState, tenant: str) -> AuditEntry:
    """The entry of the audit that a job has ended by a dispatch which its store does not remember."""
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
