"""Registered tasks: one row for each form that a task has had."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration, decode_registration
from taskmq_sql.jobs.values import KEPT_MS, LAST_CHARACTER, can_be_kept, forms_of
from taskmq_sql.steps import SqlCalls, Steps, ask, clock, insert, read_call

_TELL: Final = """
insert into taskmq.task_registration (task, digest, content, origin, worker, first_told, last_told)
@rows(text, bytea, text, text, text, bigint, bigint)
on conflict (task, origin, digest) do update set worker = excluded.worker, last_told = excluded.last_told"""
_FORGET: Final = "delete from taskmq.task_registration where last_told <= $1"
_FIND: Final = """
select content, origin, worker, first_told, last_told from taskmq.task_registration where task = any($1::text[])"""
_NAMES: Final = """
select distinct task from taskmq.task_registration where task >= $1 and task < $2 and task > $3
order by task limit $4"""


class SqlTasks(SqlCalls):
    """A `TaskStore` in the database's tables."""

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        if forms := forms_of(registrations):
            # If a power failure undoes the write, the worker reports again.
            work = partial(_register, forms=forms, origin=origin, worker=worker)
            await self.runner.change(work, is_lasting=False)

    @read_call
    def registrations(self, tasks: Sequence[str]) -> Steps[list[RegisteredTask]]:
        wanted = [task for task in set(tasks) if can_be_kept(task)]
        rows = (yield from ask(_FIND, wanted)) if wanted else ()
        return [
            RegisteredTask(
                registration=decode_registration(content), origin=origin, worker=worker, first=first, last=last
            )
            for content, origin, worker, first, last in rows
        ]

    @read_call
    def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> Steps[list[str]]:
        if not can_be_kept(prefix):
            return []
        return [row[0] for row in (yield from ask(_NAMES, prefix, prefix + LAST_CHARACTER, after or "", limit))]


def _register(*, forms: Sequence[tuple[str, bytes, str]], origin: Origin, worker: str) -> Steps[None]:
    now = yield from clock()
    yield from insert(_TELL, [(*form, origin, worker, now, now) for form in forms])
    yield from ask(_FORGET, now - KEPT_MS)
