"""What is known of tasks: a row for each form that one has had."""

from collections.abc import Sequence
from typing import Final

from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration, decode_registration
from taskmq.model.units import storable
from taskmq_sql.jobs.values import KEPT_MS, LAST_CHARACTER, can_be_kept, forms_of
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database

__all__ = ["PostgresTasks"]

_TELL: Final = """
insert into taskmq.task_registration (task, digest, content, origin, worker, first_told, last_told)
select task, digest, content, $4, $5, taskmq.now_ms(), taskmq.now_ms()
from unnest($1::text[], $2::bytea[], $3::text[]) as i(task, digest, content)
on conflict (task, origin, digest) do update set worker = excluded.worker, last_told = excluded.last_told"""
_FORGET: Final = """
delete from taskmq.task_registration where last_told <= taskmq.now_ms() - $1::bigint"""
_FIND: Final = """
select content, origin, worker, first_told, last_told from taskmq.task_registration where task = any($1::text[])"""
_NAMES: Final = """
select distinct task from taskmq.task_registration
where task >= $1 and task < $2 and ($3::text is null or task > $3) order by task limit $4"""


class PostgresTasks:
    """A `TaskStore` in PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        forms = forms_of(registrations)
        if not forms:
            return
        tasks, digests, contents = (list(column) for column in zip(*forms, strict=True))

        async def register(connection: Connection) -> None:
            await connection.execute(_TELL, tasks, digests, contents, origin, storable(worker))
            await connection.execute(_FORGET, KEPT_MS)

        await self._database.changes.run("transaction", register)

    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        wanted = [task for task in set(tasks) if can_be_kept(task)]
        if not wanted:
            return []
        rows = await self._database.reads.run("read", lambda connection: connection.fetch(_FIND, wanted))
        return [
            RegisteredTask(
                registration=decode_registration(row["content"]),
                origin=row["origin"],
                worker=row["worker"],
                first=row["first_told"],
                last=row["last_told"],
            )
            for row in rows
        ]

    async def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> list[str]:
        if not can_be_kept(prefix):
            return []
        rows = await self._database.reads.run(
            "read", lambda connection: connection.fetch(_NAMES, prefix, prefix + LAST_CHARACTER, after, limit)
        )
        return [row["task"] for row in rows]
