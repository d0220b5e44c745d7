"""Jobs that have ended and are repeated: the new one is made, and the old one says so, in one transaction."""

from typing import Final

from taskmq.contracts.jobs import JobUpdate, NewJob, Submitted
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.states import TERMINAL
from taskmq_sql.identity import note as note_audit
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.reports import Note, note
from taskmq_sql.postgres.submission import insert_within, numbers_of
from taskmq_sql.postgres.transactions import drive

__all__ = ["retry"]

# Who comes later waits here, and finds another version.
_LOCK: Final = """
select ended from taskmq.job_history
where id = $1 and ended >= $2 and version = $3 and state = $4::smallint for no key update"""
_MARK: Final = """
update taskmq.job_history set version = version + 1, retried_as = $3 where id = $1 and ended = $2"""
_NOW: Final = "select taskmq.now_ms()"


async def retry(database: Database, job: NewJob, update: JobUpdate, *, quotas: Quotas) -> Submitted | None:
    """What `JobStore.retry` does."""
    if not is_job_id(update.id) or update.before not in TERMINAL:
        return None
    numbers = await numbers_of(database.names, [job])

    async def work(connection: Connection) -> Submitted | None:
        earliest = submitted_at(update.id) - DAY
        given = (update.version, CODES[update.before])
        # A clock that is a day ahead of ours has made the id of what only the second look finds.
        ended = await connection.fetchval(_LOCK, update.id, earliest, *given)
        if ended is None and (ended := await connection.fetchval(_LOCK, update.id, 0, *given)) is None:
            return None
        (answer,) = await insert_within(connection, [job], numbers, quotas)
        if answer.is_new:
            await connection.execute(_MARK, update.id, ended, job.id)
            await note(
                connection,
                [Note(update.id, update.version + 1, update.kind, update.before, update.by, update.note)],
            )
            if update.audit is not None:
                await drive(connection, note_audit(await connection.fetchval(_NOW), [update.audit]))
        return answer

    return await database.changes.run("transaction", work)
