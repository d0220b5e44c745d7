"""Bulk operations: one action on many jobs, with its progress. Pure."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.filters import JobFilter

BulkAction = Literal["cancel", "hold", "release", "retry", "change"]
BulkState = Literal["running", "done", "aborted"]

MOST_REFUSALS: Final = 100
"""Maximum of refusals that a bulk keeps, and of repetitions."""


MOST_DEFERRED: Final = 10_000
"""Maximum of jobs in a bulk that wait until others were retried."""


class BulkRefused(msgspec.Struct, frozen=True):
    """A job that a bulk left unchanged, by its tenant's name for it, and the reason.

    Attributes:
        job_id: "" if it concerns the bulk itself, whose jobs could not be listed.
        error: the name of the error's type.
    """

    job_id: str
    error: str
    detail: str


class BulkRepeated(msgspec.Struct, frozen=True):
    """A job that a bulk repeated as a new one; both by their tenant's names for them."""

    job_id: str
    retried_as: str


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """An action on many jobs.

    Attributes:
        id: a time-ordered UUID.
        tenant: of the jobs: `""` for jobs without one, None for all jobs.
        filter: as text; relative times count from `began`.
        at: of a change: the new due time in ms; None: unchanged.
        priority: of a change; None: unchanged.
        mode: of a retry: how ended jobs run again; None: chosen for each job.
        again: of a retry: include jobs that were retried before.
        rate: jobs a second; None: unlimited.
        matched: number of jobs at the start, counted up to a cap.
        user_id, user, via: the caller who requested it.
        tasks: patterns; the task of a job that runs again must match one of each group.
        began, ended: ms.
        reattached: number of ended dependents that wait for jobs that were retried.
        done, refused: counts so far; `refusals` has the reasons of the first refused jobs, and `repeated` the
            repetitions of the first jobs that were done.
        pending: ids of the jobs that a runner is working on, or was when it died.
        after: the cursor after those; None before the first page.
        is_listed: whether no jobs follow those.
        deferred: ids of jobs that wait until others were retried, the earliest first.
        fruitless: number of deferred jobs tried in a row without success.
        due: the instant (ms) at which it continues.
        holder: the runner, until `lease_until` (ms).
        version: increases with every change.
        key: idempotency key of the request, unique within its tenant; "": none.
        fingerprint: of the request; the same key with another fingerprint is another request.
    """

    id: str
    tenant: str | None
    action: BulkAction
    filter: str
    at: int | None = None
    priority: int | None = None
    mode: RetryMode | None = None
    again: bool = False
    note: str = ""
    rate: float | None = None
    matched: int = 0
    user_id: str = ""
    user: str = ""
    via: Literal["session", "token", "host", "cli", "oidc", "event", "python"] = "cli"
    tasks: tuple[tuple[str, ...], ...] = ()
    began: int = 0
    ended: int | None = None
    state: BulkState = "running"
    done: int = 0
    reattached: int = 0
    refused: int = 0
    refusals: tuple[BulkRefused, ...] = ()
    repeated: tuple[BulkRepeated, ...] = ()
    pending: tuple[str, ...] = ()
    after: str | None = None
    is_listed: bool = False
    deferred: tuple[str, ...] = ()
    fruitless: int = 0
    due: int = 0
    holder: str = ""
    lease_until: int = 0
    version: int = 0
    key: str = ""
    fingerprint: str = ""

    @property
    def unique_key(self) -> str | None:
        """Key that no other bulk may have: the tenant and the request's key; None without a key."""
        return msgspec.json.encode([self.tenant, self.key]).decode() if self.key else None

    @property
    def has_more(self) -> bool:
        """Whether jobs other than the pending ones remain."""
        return not self.is_listed or bool(self.deferred)

    @property
    def may_defer(self) -> bool:
        """Whether a job that waits for others may be deferred, because waiting may help."""
        if not self.is_listed:
            return len(self.deferred) < MOST_DEFERRED
        return self.fruitless < len(self.deferred) + len(self.pending)

    @property
    def mark(self) -> str:
        """The note in the history of every job that the bulk changed."""
        return f"bulk {self.id}"

    def allows(self, task: str) -> bool:
        """Return whether the caller who requested the bulk may call the task."""
        return all(any(fnmatchcase(task, pattern) for pattern in patterns) for patterns in self.tasks)


def narrow_filter(which: JobFilter, action: BulkAction, *, again: bool) -> JobFilter:
    """Return the filter; for a retry it excludes jobs that were retried before, unless the filter decides itself.

    Args:
        again: include those, too.
    """
    if action != "retry" or which.retried:
        return which
    return msgspec.structs.replace(which, retried="any" if again else "no")


def add_outcomes(
    bulk: Bulk,
    *,
    done: int,
    refusals: Sequence[BulkRefused],
    due: int,
    reattached: int = 0,
    repeated: Sequence[BulkRepeated] = (),
    deferred: Sequence[str] = (),
) -> Bulk:
    """Return the bulk after its pending jobs: no runner holds it, and it continues at `due` unless it ended."""
    return msgspec.structs.replace(
        bulk,
        done=bulk.done + done,
        reattached=bulk.reattached + reattached,
        refused=bulk.refused + len(refusals),
        refusals=(*bulk.refusals, *refusals)[:MOST_REFUSALS],
        repeated=(*bulk.repeated, *repeated)[:MOST_REFUSALS],
        # The list is newest first, and jobs that wait come after those that they wait for.
        deferred=(*bulk.deferred, *deferred) if bulk.is_listed else (*reversed(deferred), *bulk.deferred),
        fruitless=0 if done or not bulk.is_listed else bulk.fruitless + len(deferred),
        pending=(),
        due=due,
    )
