"""Jobs of a dispatch: those that are ready, at the broker, or back from a worker."""

import msgspec

from taskmq.contracts.jobs.claims import JobClaim
from taskmq.contracts.jobs.dispatch.lanes import Lane


class ReadyJob(msgspec.Struct, frozen=True, kw_only=True):
    """A ready job, as `look` returns it.

    Attributes:
        body: as it will be published; empty if it is too large to be read with others.
        is_over: whether it has expired, and ends when it is dispatched.
    """

    id: str
    lane: Lane
    task: str
    body: bytes
    is_over: bool = False


class DispatchedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A dispatched job that must be published.

    Attributes:
        token: of this dispatch; a report counts with it only.
        node: the host node that it was placed on; "": any worker of its queue may have it.
        due: when it was to run, ms since the epoch; None where an earlier run of it has begun.
        outages: how many outages have interrupted runs of this attempt.
        owner: who submitted it; "": unknown.
        crashes: how many workers died while they had this dispatch; None: its message never came back.
        claims: as its scheduler knows them; to be taken before it is published.
        fence: of its idempotency key, once it holds its claims; 0 without a key.
        start: instant of its start under a strict rate, ms since the epoch; None: without one.
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
    crashes: int | None = None
    claims: tuple[JobClaim, ...] = ()
    start: float | None = None
    fence: int | None = None


class ReturnedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A dispatched job that needs a new message: its message came back, or its worker is gone.

    Attributes:
        token: of its dispatch.
        crashes: how many more workers died while they had it.
        reason: note of the event in the job's history.
    """

    id: str
    token: int
    crashes: int = 0
    reason: str = ""


class DispatchBatch(msgspec.Struct, frozen=True):
    """Jobs that were dispatched together.

    Attributes:
        confirmed: whether the broker confirmed them.
        jobs: jobs that still have the token of the batch.
        expired: number of jobs that ended in the same dispatch, because they had expired.
    """

    id: int
    confirmed: bool
    jobs: list[DispatchedJob]
    expired: int = 0
