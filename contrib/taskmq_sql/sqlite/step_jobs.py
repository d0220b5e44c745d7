"""Submission, count and cancellation of jobs together with the changes of their run."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from msgspec.structs import replace

from taskmq.contracts.jobs import Lane, Pick, cancellation
from taskmq.model.states import UNDERWAY, JobState
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_text
from taskmq_sql.sqlite.jobs.dispatches import dispatch, lanes
from taskmq_sql.sqlite.jobs.live_jobs import load
from taskmq_sql.sqlite.jobs.submissions import occur
from taskmq_sql.sqlite.jobs.updates import update
from taskmq_sql.sqlite.quotas import count_queued
from taskmq_sql.sqlite.runner import Answers, fetch
from taskmq_sql.steps import CANCEL, GUARDED, QUEUED, SUBMIT, Row

# All versions of a row are equal here, see the runner.
_MARK: Final = "1"


def _submit(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    return [(answer,) for answer in occur(transaction, args)]


def _count_queued(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    tenant, most = args
    return [(count_queued(transaction, {tenant: most}).get(tenant, 0),)]


def _change_guarded(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    guard, changes, jobs, hold = args
    for each in (guard, *changes):
        fetch(transaction, each)
    if hold is None or any(lane.queue == jobs[0].queue for lane in lanes(transaction)):
        return [(occur(transaction, jobs), None, _MARK)]
    (job,), (answer,) = jobs, occur(transaction, jobs)
    pick = Pick(Lane(job.queue, job.priority, job.tenant), 1)
    if (batch := dispatch(transaction, hold.partition, hold.epoch, [pick])) is not None:
        answer = replace(answer, state=JobState.DISPATCHED)
    return [([answer], batch, _MARK)]


def _cancel(transaction: Transaction, args: Sequence[Any]) -> Sequence[Row]:
    reason, *ids = args
    asked: list[Row] = []
    for job in load(transaction, [UUID(each).bytes for each in ids]).values():
        state, job_id = STATES[job.state], id_text(job.id)
        if job.cancel_requested is not None:
            continue
        update(transaction, cancellation(job_id, state, job.version, reason=reason))
        if state in UNDERWAY:
            asked.append((job_id,))
    return asked


ANSWERS: Final[Answers] = {
    SUBMIT: _submit,
    QUEUED: _count_queued,
    CANCEL: _cancel,
    GUARDED: _change_guarded,
}
"""Answers to the queries of a run about its jobs."""
