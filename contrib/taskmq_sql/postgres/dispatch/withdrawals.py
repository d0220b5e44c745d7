"""Jobs withdrawn from their dispatch: returned to their queues, or failed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchedJob, Withdrawn
from taskmq.model.states import UNDERWAY, JobState
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.values import is_job_id, reason
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.ended.endings import Ending, end
from taskmq_sql.postgres.notes import Note, note
from taskmq_sql.postgres.statements.dispatch import UNDISPATCH, WITHDRAWN
from taskmq_sql.postgres.statements.reports import EXISTING

AT_BROKER: Final = frozenset({JobState.DISPATCHED})


async def undispatch(
    connection: Connection, hold: tuple[str, int], tokens: Mapping[str, int], delay: float, why: str
) -> Withdrawn:
    """Return jobs that no worker started to their queues after `delay` seconds; end those being cancelled."""
    after = JobState.SCHEDULED if delay > 0 else JobState.QUEUED
    rows = await connection.fetch(
        UNDISPATCH, list(tokens), list(tokens.values()), CODES[after], round(delay * 1000), *hold
    )
    if not rows:
        return Withdrawn(is_fenced=True)
    notes = [
        Note(str(row["id"]), row["version"], "undispatched", after, "", why) for row in rows if row["id"] is not None
    ]
    done = {each.id for each in notes}
    running: frozenset[str] = frozenset()
    if left := sorted(tokens.keys() - done):
        existing = await connection.fetch(EXISTING, left)
        waiting, running = _split_by_state(existing, tokens, AT_BROKER)
        asked = waiting & {str(row["id"]) for row in existing if row["cancel_requested"] is not None}
        if asked:
            endings = [Ending(id=job, token=tokens[job], state=JobState.CANCELLED) for job in asked]
            notes += [
                Note(str(row["id"]), row["version"], "undispatched", JobState.CANCELLED, "", why)
                for row in await end(connection, endings)
            ]
    await note(connection, notes)
    return Withdrawn(frozenset(each.id for each in notes), running)


async def fail(
    connection: Connection, hold: tuple[str, int], tokens: Mapping[str, int], why: str, states: Collection[JobState]
) -> Withdrawn:
    """End the jobs in these states as failed."""
    rows = await connection.fetch(WITHDRAWN, list(tokens), *hold)
    if not rows:
        return Withdrawn(is_fenced=True)
    waiting, running = _split_by_state([row for row in rows if row["id"] is not None], tokens, states)
    if waiting:
        error = reason(why)
        endings = [Ending(id=job, token=tokens[job], state=JobState.FAILED, error=error) for job in waiting]
        await note(
            connection,
            [
                Note(str(row["id"]), row["version"], "ended", JobState.FAILED, text=error.message)
                for row in await end(connection, endings)
            ],
        )
    return Withdrawn(waiting, running)


def tokens_of(jobs: Sequence[DispatchedJob]) -> dict[str, int]:
    """Return the tokens by job id, sorted: rows are locked in that order."""
    return {job.id: job.token for job in sorted(jobs, key=lambda job: job.id) if is_job_id(job.id)}


def _split_by_state(
    rows: Sequence[Row], tokens: Mapping[str, int], states: Collection[JobState]
) -> tuple[frozenset[str], frozenset[str]]:
    """Split the jobs under way with these tokens: those in these states, and the others."""
    held = {
        job: state
        for row in rows
        if row["token"] == tokens[job := str(row["id"])] and (state := STATES[row["state"]]) in UNDERWAY
    }
    return (
        frozenset(job for job, state in held.items() if state in states),
        frozenset(job for job, state in held.items() if state not in states),
    )
