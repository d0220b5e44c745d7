"""Changing one job: its row is compared and set, and its row of `ready` or `timer` kept in step, in one statement."""

from typing import Final

from msgspec import UNSET

from taskmq.contracts.jobs import JobUpdate
from taskmq.model.states import TERMINAL, JobState, can_follow
from taskmq.model.units import storable
from taskmq_sql.identity import note
from taskmq_sql.jobs.codes import CODES, EVENT_CODES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import escaped_error, is_job_id, shard_of
from taskmq_sql.postgres.connections import Connection, Purpose
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.records import error_columns
from taskmq_sql.postgres.statements import CHANGE, JOB_COLUMNS, LEAVE_UPSTREAM
from taskmq_sql.postgres.transactions import drive

__all__ = ["change", "change_in"]

_NOW: Final = "select taskmq.now_ms()"
_WAITS_FOR_OTHERS: Final = (JobState.WAITING, JobState.HELD)
_END: Final = f"""
with gone as (delete from taskmq.job where id = $1 returning *),
e as (insert into taskmq.upstream_end (id, state) select id, state from gone where has_dependents)
insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
select {JOB_COLUMNS}, taskmq.now_ms(), taskmq.now_ms() from gone"""


async def change(database: Database, update: JobUpdate) -> int | None:
    """What `JobStore.update` does."""
    if not is_job_id(update.id) or update.before in TERMINAL:
        return None
    if update.after is not update.before and not can_follow(update.before, update.after):
        return None
    queue: int | None = None
    if update.queue is not UNSET:
        queue = (await database.names.ids("queue", [update.queue]))[update.queue]
    is_more = update.audit is not None or update.after in TERMINAL
    purpose: Purpose = "transaction" if is_more else "statement"
    return await database.changes.run(purpose, lambda connection: change_in(connection, update, queue))


async def change_in(connection: Connection, update: JobUpdate, queue: int | None = None) -> int | None:
    """`change` as a part of the connection's transaction; where nothing was changed, nothing was written."""
    version = await connection.fetchval(CHANGE, *_values(update, queue))
    if version is None:
        return None
    if update.audit is not None:
        await drive(connection, note(await connection.fetchval(_NOW), [update.audit]))
    if update.after in TERMINAL:
        await connection.execute(_END, update.id)
        if update.before in _WAITS_FOR_OTHERS:
            await connection.execute(LEAVE_UPSTREAM, [update.id])
    return int(version)


def _values(update: JobUpdate, queue: int | None) -> tuple[object, ...]:
    """What `CHANGE` is given; what is unset stays as it is, by None or by the boolean before it."""
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
        *(error_columns(None if update.error is UNSET else escaped_error(update.error))),
        EVENT_CODES[update.kind],
        storable(update.by),
        storable(update.note),
    )
