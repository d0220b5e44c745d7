"""Changing one job: its row is compared and set, and its row of `ready` or `timer` kept in step."""

from typing import Any, Final

import msgspec
from msgspec import UNSET

from taskmq.contracts.jobs import JobUpdate
from taskmq.model.states import TERMINAL, JobState, can_follow
from taskmq_sql.identity import note
from taskmq_sql.jobs.codes import CODES, EVENT_CODES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import escaped, escaped_error, is_job_id, shard_of
from taskmq_sql.postgres.connections import Connection, Row, undone
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import unmet
from taskmq_sql.postgres.records import error_columns
from taskmq_sql.postgres.statements import EVENTS, JOB_COLUMNS, LEAVE_UPSTREAM
from taskmq_sql.postgres.transactions import drive

__all__ = ["change", "change_in"]

_NOW: Final = "select taskmq.now_ms()"
_WAITS: Final = (JobState.SCHEDULED, JobState.RETRYING)
_WAITS_FOR_OTHERS: Final = (JobState.WAITING, JobState.HELD)
_RUNS: Final = (JobState.SCHEDULED, JobState.QUEUED)
_READ: Final = "select state, version, queue, priority, tenant, due from taskmq.job where id = $1"
_LEAVE_READY: Final = """
delete from taskmq.ready where queue = $1 and priority = $2 and tenant = $3 and due = $4 and id = $5 returning id"""
_LEAVE_TIMER: Final = "delete from taskmq.timer where shard = $1 and due = $2 and id = $3 returning id"
_ENTER_READY: Final = "insert into taskmq.ready (queue, priority, tenant, due, id) values ($1, $2, $3, $4, $5)"
_ENTER_TIMER: Final = "insert into taskmq.timer (shard, due, id) values ($1, $2, $3)"
_BODY: Final = """
insert into taskmq.job_body (id, body) values ($1, $2) on conflict (id) do update set body = excluded.body"""
_NO_BODY: Final = "delete from taskmq.job_body where id = $1"
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
    return await database.changes.run("transaction", lambda connection: change_in(connection, update, queue))


async def change_in(connection: Connection, update: JobUpdate, queue: int | None = None) -> int | None:
    """`change` as a part of the connection's transaction; where nothing was changed, nothing was written."""
    row = await connection.fetchrow(_READ, update.id)
    if row is None or (row["state"], row["version"]) != (CODES[update.before], update.version):
        return None
    # Where the last of those that it waits for ends in this moment, its version is another one.
    is_free = update.before in _WAITS_FOR_OTHERS and update.after in _RUNS
    if is_free and await unmet(connection, update.id, 1):
        update = msgspec.structs.replace(update, after=JobState.WAITING)
    # Before the job's own row, as schedulers do it: who has taken this one has the job.
    if not await _leave(connection, update, row):
        return None
    changed = await _set(connection, update, queue)
    if changed is None:
        if update.before is JobState.QUEUED or update.before in _WAITS:
            raise undone(None)
        return None
    await _enter(connection, update, changed)
    if update.body is not UNSET:
        is_large = len(update.body) > LONGEST_BODY
        await connection.execute(_BODY if is_large else _NO_BODY, update.id, *([update.body] if is_large else []))
    kind, state = EVENT_CODES[update.kind], CODES[update.after]
    await connection.execute(
        EVENTS, [update.id], [changed["version"]], [kind], [state], [escaped(update.by)], [escaped(update.note)]
    )
    if update.audit is not None:
        await drive(connection, note(await connection.fetchval(_NOW), [update.audit]))
    if update.after in TERMINAL:
        await connection.execute(_END, update.id)
        if update.before in _WAITS_FOR_OTHERS:
            await connection.execute(LEAVE_UPSTREAM, [update.id])
    return int(changed["version"])


async def _leave(connection: Connection, update: JobUpdate, row: Row) -> bool:
    if update.before is JobState.QUEUED:
        lane = (row["queue"], row["priority"], row["tenant"], row["due"])
        return await connection.fetchval(_LEAVE_READY, *lane, update.id) is not None
    if update.before in _WAITS:
        return await connection.fetchval(_LEAVE_TIMER, shard_of(update.id), row["due"], update.id) is not None
    return True


async def _enter(connection: Connection, update: JobUpdate, row: Row) -> None:
    if update.after is JobState.QUEUED:
        lane = (row["queue"], row["priority"], row["tenant"], row["due"])
        await connection.execute(_ENTER_READY, *lane, update.id)
    elif update.after in _WAITS:
        await connection.execute(_ENTER_TIMER, shard_of(update.id), row["due"], update.id)


async def _set(connection: Connection, update: JobUpdate, queue: int | None) -> Row | None:
    fields: dict[str, Any] = {"state": CODES[update.after]}
    if queue is not None:
        fields["queue"] = queue
    for name in ("due", "expires", "priority"):
        if (value := getattr(update, name)) is not UNSET:
            fields[name] = value
    if update.cancel_requested is not UNSET:
        fields["cancel_requested"] = escaped(update.cancel_requested)
    if update.body is not UNSET:
        fields["body"] = update.body if len(update.body) <= LONGEST_BODY else None
    if update.error is not UNSET:
        columns = error_columns(escaped_error(update.error))
        fields |= dict(zip(("error_type", "error_message", "traceback"), columns, strict=True))
    sets = ", ".join(f"{name} = ${place}" for place, name in enumerate(fields, 4))
    return await connection.fetchrow(
        f"update taskmq.job set version = version + 1, {sets} where id = $1 and version = $2 and state = $3 "
        "returning version, queue, priority, tenant, due",
        update.id,
        update.version,
        CODES[update.before],
        *fields.values(),
    )
