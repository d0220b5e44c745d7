"""Jobs that have ended and are repeated: the new one is made, and the old one says so, in one transaction."""

from typing import Final

from taskmq.contracts.jobs import HistoryEntry, JobUpdate, NewJob, Submitted
from taskmq.model.states import TERMINAL
from taskmq_sql.sqlite.file.connection import Transaction
from taskmq_sql.sqlite.jobs.codes import CODES, id_bytes
from taskmq_sql.sqlite.jobs.submissions import submit
from taskmq_sql.sqlite.jobs.updates import write_down

__all__ = ["retry"]

_AS_IT_WAS: Final = "SELECT 1 FROM job_history WHERE id = ? AND state = ? AND version = ?"
_REPEATED: Final = "UPDATE job_history SET retried_as = ?, version = version + 1 WHERE id = ?"


def retry(transaction: Transaction, job: NewJob, change: JobUpdate) -> Submitted | None:
    """Keep a job that repeats one which has ended, and note there that it does."""
    if change.before not in TERMINAL:
        return None
    given = (id_bytes(change.id), CODES[change.before], change.version)
    if transaction.connection.execute(_AS_IT_WAS, given).fetchone() is None:
        return None
    (answer,) = submit(transaction, [job])
    if answer.is_new:
        transaction.connection.execute(_REPEATED, (id_bytes(job.id), id_bytes(change.id)))
        event = HistoryEntry(
            version=change.version + 1,
            at=transaction.now,
            kind=change.kind,
            state=change.before,
            by=change.by,
            note=change.note,
        )
        write_down(transaction, change, event)
    return answer
