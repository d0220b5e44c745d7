"""The same done to many jobs: what was asked for, and how far it is. Pure."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.filters import JobFilter

__all__ = [
    "MOST_DEFERRED",
    "MOST_REFUSALS",
    "Bulk",
    "BulkAction",
    "BulkRefused",
    "BulkRepeated",
    "BulkState",
    "add_outcomes",
    "wanted",
]

BulkAction = Literal["cancel", "hold", "release", "retry", "change"]
BulkState = Literal["running", "done", "aborted"]

MOST_REFUSALS: Final = 100
"""The largest number of jobs whose refusals a bulk keeps, and of those whose repetitions it keeps."""


MOST_DEFERRED: Final = 10_000
"""So many jobs may wait until others were retried."""


class BulkRefused(msgspec.Struct, frozen=True):
    """A job that stayed as it was, by the name that its tenant has for it, and why.

    Attributes:
        job_id: "" where it is about the bulk, whose jobs could not be found.
        error: the name of the error's type.
    """

    job_id: str
    error: str
    detail: str


class BulkRepeated(msgspec.Struct, frozen=True):
    """A job that was retried as another one, both by the names that their tenant has for them."""

    job_id: str
    retried_as: str


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is done to many jobs.

    Attributes:
        id: a time-ordered UUID.
        tenant: whose jobs are meant: `""` those that have no tenant, None everybody's.
        filter: as people write it; what it says of times counts from `began`.
        at: of a change: when the jobs are to run, in ms; None: as before.
        priority: of a change; None: as before.
        mode: of a retry: how jobs that have ended are run again; None: each as suits it.
        again: of a retry: also jobs that were retried before.
        rate: to so many jobs a second; None: as fast as it goes.
        matched: how many jobs there were when it began, counted up to a cap.
        user_id, user, via: who has asked for it.
        tasks: patterns; a job's task that is to be called again has to fit one of each.
        began, ended: ms.
        done, refused: so many jobs so far; `refusals` say why of the first of them, and `repeated` which jobs repeat
            the first that were done.
        pending: ids of the jobs that a runner is at, or was when it died.
        after: the cursor behind those; None before the first page.
        is_listed: there are none behind those.
        deferred: ids of jobs that wait for others which are to be retried first, the earliest first.
        fruitless: so many of them in a row were tried since the last one that it was done to.
        due: not before this instant (ms) it goes on.
        holder: who is at it, until `lease_until` (ms).
        version: grows with every change.
        key: of the request that has begun it, its tenant's own; "": it had none.
        fingerprint: of what was asked for; the same key with another one is another request.
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
    via: Literal["session", "token", "host", "cli", "oidc", "event"] = "cli"
    tasks: tuple[tuple[str, ...], ...] = ()
    began: int = 0
    ended: int | None = None
    state: BulkState = "running"
    done: int = 0
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
        """What no other bulk may have: its key, with the tenant's name; None without a key."""
        return msgspec.json.encode([self.tenant, self.key]).decode() if self.key else None

    @property
    def has_more(self) -> bool:
        """Whether it is to be done to further jobs than the pending ones."""
        return not self.is_listed or bool(self.deferred)

    @property
    def may_defer(self) -> bool:
        """Whether a job that waits for others may have its turn later, since that may help."""
        if not self.is_listed:
            return len(self.deferred) < MOST_DEFERRED
        return self.fruitless < len(self.deferred) + len(self.pending)

    @property
    def mark(self) -> str:
        """The note in the history of every job that it was done to."""
        return f"bulk {self.id}"

    def allows(self, task: str) -> bool:
        """Whether who has asked for it may have the task called again."""
        return all(any(fnmatchcase(task, pattern) for pattern in patterns) for patterns in self.tasks)


def wanted(which: JobFilter, action: BulkAction, *, again: bool) -> JobFilter:
    """The filter, which of a retry leaves out what was retried before, unless it says itself whether it does.

    Args:
        again: those are meant, too.
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
    repeated: Sequence[BulkRepeated] = (),
    deferred: Sequence[str] = (),
) -> Bulk:
    """The bulk after its pending jobs: no runner is at them, and it goes on at `due` where it has not ended."""
    return msgspec.structs.replace(
        bulk,
        done=bulk.done + done,
        refused=bulk.refused + len(refusals),
        refusals=(*bulk.refusals, *refusals)[:MOST_REFUSALS],
        repeated=(*bulk.repeated, *repeated)[:MOST_REFUSALS],
        # The list has the newest first, and those that wait come behind those that they wait for.
        deferred=(*bulk.deferred, *deferred) if bulk.is_listed else (*reversed(deferred), *bulk.deferred),
        fruitless=0 if done or not bulk.is_listed else bulk.fruitless + len(deferred),
        pending=(),
        due=due,
    )
