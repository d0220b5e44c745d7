"""Dispatched jobs that have to wait after all: they return to the store, behind gates."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from taskmq.contracts.jobs import partition_key
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.steps import JobId, Steps, ask, first, insert, job_id

_DISPATCHED: Final = CODES[JobState.DISPATCHED]
_LEASE: Final = """
select 1 from taskmq.lease where key = $1 and epoch = $2 and holder is not null for share"""
_JOBS: Final = """
select id, token, state, cancel_requested, queue from taskmq.job where id = any($1::uuid[]) order by id for update"""
_RETURN: Final = """
update taskmq.job set state = 1, version = version + 1, dispatched = null where id = any($1::uuid[])
returning id, due, queue, tenant, priority"""
_PUT: Final = """
insert into taskmq.gated (id, due, queue, tenant, partition, priority, gate)
@rows(uuid, bigint, int, int, smallint, smallint, text)"""


class LockedJob(NamedTuple):
    """The dispatch and the queue of a locked job.

    Attributes:
        token: of its last dispatch.
        is_dispatched: whether it is dispatched, and its cancellation was not requested.
        queue: number of its queue.
    """

    token: int
    is_dispatched: bool
    queue: int


def holds_lease(partition: int, epoch: int) -> Steps[bool]:
    """Return whether the epoch still holds the partition; if so, it does until the transaction ends."""
    return (yield from first(_LEASE, partition_key(partition), epoch)) is not None


def lock_jobs(ids: Iterable[str]) -> Steps[dict[str, LockedJob]]:
    """Lock jobs in the order of their ids, and return those that are live."""
    rows = yield from ask(_JOBS, [JobId(each) for each in ids])
    return {job_id(row[0]): LockedJob(row[1], row[2] == _DISPATCHED and row[3] is None, row[4]) for row in rows}


def return_behind(partition: int, gates: Mapping[str, str]) -> Steps[None]:
    """Move locked jobs of the partition behind gates, by their ids."""
    if not gates:
        return
    rows = yield from ask(_RETURN, [JobId(job) for job in gates])
    yield from insert(_PUT, [(*row[:4], partition, row[4], gates[job_id(row[0])]) for row in rows])
