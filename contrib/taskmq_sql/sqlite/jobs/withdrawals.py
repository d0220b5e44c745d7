"""Jobs withdrawn from their dispatch, mostly before a worker starts them."""

from collections.abc import Container, Iterable, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchedJob, HistoryEntry, Withdrawn
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import UNDER_WAY, id_bytes, id_text
from taskmq_sql.sqlite.jobs.dispatches import holds
from taskmq_sql.sqlite.jobs.live_jobs import LiveJob, load, note_ends, note_events, save

_AT_BROKER: Final = frozenset([CODES[JobState.DISPATCHED]])


def undispatch(
    transaction: Transaction, *, partition: int, epoch: int, jobs: Sequence[DispatchedJob], delay: float, reason: str
) -> Withdrawn:
    """Return jobs that no worker started to their queues after `delay` seconds; end those being cancelled."""
    now = transaction.now
    found, withdrawn = _withdraw(transaction, partition, epoch, jobs, _AT_BROKER)
    for job in found:
        if job.cancel_requested is not None:
            job.step(JobState.CANCELLED, now=now)
            job.give_reason(job.cancel_requested)
            continue
        # The dispatch is no attempt.
        job.dispatched = None
        if delay > 0:
            job.step(JobState.SCHEDULED, now=now)
            job.put_off(now + round(delay * 1000))
        else:
            job.step(JobState.QUEUED, now=now)
    save(transaction, found)
    note_events(
        transaction,
        [
            (
                job.id,
                HistoryEntry(version=job.version, at=now, kind="undispatched", state=STATES[job.state], note=reason),
            )
            for job in found
        ],
    )
    return withdrawn


def fail(
    transaction: Transaction,
    *,
    partition: int,
    epoch: int,
    jobs: Sequence[DispatchedJob],
    reason: str,
    also_running: bool,
) -> Withdrawn:
    """End jobs as failed: those that no worker started, or all under way."""
    states = UNDER_WAY if also_running else _AT_BROKER
    found, withdrawn = _withdraw(transaction, partition, epoch, jobs, states)
    for job in found:
        job.step(JobState.FAILED, now=transaction.now)
        job.give_reason(reason)
    save(transaction, found)
    note_ends(transaction, found)
    return withdrawn


def _withdraw(
    transaction: Transaction, partition: int, epoch: int, jobs: Iterable[DispatchedJob], states: Container[int]
) -> tuple[list[LiveJob], Withdrawn]:
    """Return the jobs in these states with these tokens, and the answer for the caller."""
    if not holds(transaction, partition, epoch):
        return [], Withdrawn(is_fenced=True)
    tokens = {job_id: job.token for job in jobs if (job_id := id_bytes(job.id)) is not None}
    held = [
        job
        for job in load(transaction, list(tokens)).values()
        if job.state in UNDER_WAY and job.token == tokens[job.id]
    ]
    found = [job for job in held if job.state in states]
    running = frozenset(id_text(job.id) for job in held if job.state not in states)
    return found, Withdrawn(frozenset(id_text(job.id) for job in found), running)
