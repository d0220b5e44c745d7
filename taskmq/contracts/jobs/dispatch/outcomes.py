"""Results of operations of schedulers: what they released, withdrew and ended."""

from typing import Literal

import msgspec

from taskmq.contracts.jobs.dispatch.lanes import Lane
from taskmq.model.states import JobState


class AppliedReport(msgspec.Struct, frozen=True, gc=False):
    """The effect of a report.

    Attributes:
        outcome: `accepted`; `superseded`: of an earlier dispatch, or the job has ended; `invented`: of a dispatch
            that the store does not know, without a genuine proof; `unknown`: the store has no such job.
        state: the job's new state; None if it is unknown.
        queue: the job's queue.
        has_dependents: whether it ended and others wait, or waited, for it: `release_dependents` has work to do.
        run: if it ended, the run that it is a step of, which has work to do; "" if there is none.
    """

    outcome: Literal["accepted", "superseded", "invented", "unknown"]
    state: JobState | None = None
    queue: str = ""
    has_dependents: bool = False
    run: str = ""


class Withdrawn(msgspec.Struct, frozen=True):
    """Dispatched jobs that a scheduler took back or ended.

    A job in neither set is unchanged: it has ended, it was dispatched again, or the partition has another holder.

    Attributes:
        ids: jobs that were taken back, or that ended.
        running: jobs that a worker started under the same token: they continue, and their reports will arrive.
        is_fenced: whether the partition has another holder, which takes over the jobs and their batches.
    """

    ids: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    is_fenced: bool = False


class OpenedClaims(msgspec.Struct, frozen=True):
    """Jobs that came back from behind the gates of claims.

    Attributes:
        lanes: lanes with new ready jobs, in any partition.
        waiting: claims that more jobs may wait for.
        done: idempotency keys whose work is done, so that all their jobs end without a run.
    """

    lanes: frozenset[Lane]
    waiting: frozenset[str]
    done: frozenset[str] = frozenset()


class Released(msgspec.Struct, frozen=True):
    """The effect of ended jobs on their dependents.

    Attributes:
        queues: queues with new ready jobs.
        is_more: whether there is more to do immediately.
    """

    queues: frozenset[str] = frozenset()
    is_more: bool = False


class DueJob(msgspec.Struct, frozen=True, order=True):
    """A timer: the due time of a job, ms since the epoch, and the facts that `DispatchStore.fire` needs."""

    due: int
    id: str
    shard: int
