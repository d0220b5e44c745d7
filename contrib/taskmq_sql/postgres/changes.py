"""Change one job: compare and set its row, and keep its row of `ready` or `timer` in step, in one statement."""

from typing import Final

from msgspec import UNSET

from taskmq.contracts.jobs import JobRecord, JobUpdate
from taskmq.model.states import TERMINAL, can_follow
from taskmq.model.units import storable
from taskmq_sql.identity import audit_values
from taskmq_sql.jobs.codes import CODES, EVENT_CODES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import escape_error, is_job_id, shard_of
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.records import error_columns, job_records
from taskmq_sql.postgres.statements.changes import CHANGE, CHANGE_AUDITED, CHANGE_ENDS, CHANGE_ENDS_AUDITED

# Keyed by whether the change ends the job, and whether it is audited.
_STATEMENTS: Final = {
    (False, False): CHANGE,
    (False, True): CHANGE_AUDITED,
    (True, False): CHANGE_ENDS,
    (True, True): CHANGE_ENDS_AUDITED,
}


async def change(database: Database, update: JobUpdate) -> JobRecord | None:
    """Implement `JobStore.update`."""
    if not is_job_id(update.id) or update.before in TERMINAL:
        return None
    if update.after is not update.before and not can_follow(update.before, update.after):
        return None
    queue: int | None = None
    if update.queue is not UNSET:
        queue = (await database.names.ids("queue", [update.queue]))[update.queue]
    row = await database.changes.run("statement", lambda connection: change_in(connection, update, queue))
    return None if row is None else (await job_records([row], database.names))[0]


async def change_in(connection: Connection, update: JobUpdate, queue: int | None = None) -> Row | None:
    """Run `change` on a connection, or in its transaction; return the row, None if nothing was changed."""
    statement = _STATEMENTS[update.after in TERMINAL, update.audit is not None]
    noted = () if update.audit is None else map(_storable, audit_values(update.audit))
    return await connection.fetchrow(statement, *_values(update, queue), *noted)


def _storable(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


def _values(update: JobUpdate, queue: int | None) -> tuple[object, ...]:
    """Return the arguments of `CHANGE`; None, or a boolean before the value, leaves a column unchanged."""
    body = None if update.body is UNSET else update.body
    is_large = body is not None and len(body) > LONGEST_BODY
    reason = None if update.cancel_requested is UNSET else storable(update.cancel_requested)
    return (
        update.id,
        update.version,
        CODES[update.before],
        shard_of(update.id),
        CODES[update.after],
        queue,
        None if update.priority is UNSET else update.priority,
        None if update.due is UNSET else update.due,
        update.expires is not UNSET,
        None if update.expires is UNSET else update.expires,
        reason,
        body is not None,
        None if is_large else body,
        body if is_large else None,
        *(error_columns(None if update.error is UNSET else escape_error(update.error))),
        EVENT_CODES[update.kind],
        storable(update.by),
        storable(update.note),
    )
