"""Dependents that ended because of a job, and wait for its new run: see `taskmq_sql.postgres.ended.dependents`."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import HistoryEntry, JobUpdate
from taskmq.model.jobs.dependencies import JobDependency, reattachment_note, unmet_conditions
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES, CONDITION_CODES, CONDITIONS
from taskmq_sql.sqlite.file.sets import in_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.dependencies import Upstream, settle_ends_of
from taskmq_sql.sqlite.jobs.live_jobs import note_events

_WAITING: Final = CODES[JobState.WAITING]
_ENDED: Final = f"state IN ({CODES[JobState.SKIPPED]}, {CODES[JobState.UPSTREAM_FAILED]}) AND retried_as IS NULL"
_DEPENDENTS: Final = "SELECT DISTINCT dependent FROM failed_dependency WHERE upstream IN (@values)"
_DEPENDENTS_OF: Final = "SELECT dependent, condition FROM failed_dependency WHERE upstream = ?"
_OPEN: Final = f"SELECT id, version, tenant FROM job_history WHERE id IN (@values) AND {_ENDED}"
_UPSTREAM: Final = "SELECT upstream, dependent, condition FROM failed_dependency WHERE dependent IN (@values)"
_RENAME: Final = "UPDATE failed_dependency SET upstream = ? WHERE upstream = ? AND dependent = ?"
_REATTACH: Final = f"""
    INSERT INTO job (id, state, version, attempt, token, tenant, queue, task, priority, due, expires, dispatched,
        started, worker, scheduled, first_started, key, detail, body)
    SELECT id, {_WAITING}, version + 1, attempt, token, tenant, queue, task, priority, due,
        iif(expires > ?1, expires, NULL), dispatched, started, worker, scheduled, first_started, key, detail, body
    FROM job_history WHERE id = ?2
"""
_FORGET: Final = "DELETE FROM failed_dependency WHERE dependent IN (@values)"


def forget_failed_upstream(transaction: Transaction, job_id: bytes) -> None:
    """Forget what ended a job, because it runs again, or another job repeats it."""
    in_each(transaction.connection, _FORGET, [job_id])


def reattach_dependents(transaction: Transaction, change: JobUpdate, runs: str) -> int:
    """Let the dependents that a job ended wait for the job `runs`; return how many wait now.

    Args:
        change: the retry of the job that ended.
    """
    connection = transaction.connection
    ran_id, run_id = id_bytes(change.id), id_bytes(runs)
    conditions = [CONDITION_CODES[each] for each in unmet_conditions(change.before)]
    edges = [edge for edge in connection.execute(_DEPENDENTS_OF, (ran_id,)).fetchall() if edge[1] in conditions]
    if run_id != ran_id:
        connection.executemany(_RENAME, [(run_id, ran_id, dependent) for dependent, _ in edges])
    found = {dependent for dependent, _ in edges}
    note = reattachment_note(change.note, change.id, runs)
    count = 0
    while found:
        chosen = _select_reattached(transaction, sorted(found))
        settle_ends_of(transaction, [job_id for job_id, _, _ in chosen])
        in_each(connection, _FORGET, [job_id for job_id, _, _ in chosen])
        for job_id, version, upstream in chosen:
            connection.execute(_REATTACH, (transaction.now, job_id))
            connection.execute("DELETE FROM job_history WHERE id = ?", (job_id,))
            upstream.add(job_id)
            event = HistoryEntry(
                version=version + 1,
                at=transaction.now,
                kind="retry",
                state=JobState.WAITING,
                by=change.by,
                note=note,
            )
            note_events(transaction, [(job_id, event)])
        count += len(chosen)
        rows = select_each(connection, _DEPENDENTS, [job_id for job_id, _, _ in chosen])
        found = {dependent for (dependent,) in rows}
    return count


def _select_reattached(transaction: Transaction, ids: Sequence[bytes]) -> list[tuple[bytes, int, Upstream]]:
    """Return those of these jobs whose dependencies can all be met, with their versions and dependencies."""
    of_job: defaultdict[bytes, list[JobDependency]] = defaultdict(list)
    for upstream, dependent, condition in select_each(transaction.connection, _UPSTREAM, ids):
        of_job[dependent].append(JobDependency(id_text(upstream), CONDITIONS[condition]))
    chosen: list[tuple[bytes, int, Upstream]] = []
    for job_id, version, tenant in select_each(transaction.connection, _OPEN, ids):
        upstream = Upstream(transaction, of_job[job_id])
        if upstream.refusal(tenant) is None and all(state not in TERMINAL for *_, state in upstream.unmet()):
            chosen.append((job_id, version, upstream))
    return chosen
