"""What is known of tasks: a row for each form that one has had."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration, decode_registration
from taskmq.model.units import storable
from taskmq_sql.jobs.values import KEPT_MS, LAST_CHARACTER, can_be_kept, forms_of
from taskmq_sql.sqlite.file.connection import Care, Transaction
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.file.thread import FileThread

__all__ = ["SqliteTasks"]

_TELL: Final = """
INSERT INTO task_registration (task, digest, content, origin, worker, first_told, last_told) VALUES @rows
ON CONFLICT (task, origin, digest) DO UPDATE SET worker = excluded.worker, last_told = excluded.last_told"""
_FORGET: Final = "DELETE FROM task_registration WHERE last_told <= ?"
_FIND: Final = """
SELECT content, origin, worker, first_told, last_told FROM task_registration WHERE task IN (@values)"""
_NAMES: Final = """
SELECT DISTINCT task FROM task_registration WHERE task >= ? AND task < ? AND task > ? ORDER BY task LIMIT ?"""


class SqliteTasks:
    """A `TaskStore` in an SQLite file."""

    def __init__(self, writer: FileThread, reader: FileThread) -> None:
        self._writer = writer
        self._reader = reader

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        if forms := forms_of(registrations):
            work = partial(_register, forms=forms, origin=origin, worker=storable(worker))
            # What a power failure takes is reported again soon.
            await self._writer.call(work, care=Care.LOOSE)

    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        wanted = [task for task in set(tasks) if can_be_kept(task)]
        return await self._reader.call(partial(_find, wanted=wanted), care=Care.READ)

    async def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> list[str]:
        if not can_be_kept(prefix):
            return []
        args = (prefix, prefix + LAST_CHARACTER, after or "", limit)
        return await self._reader.call(partial(_names, args=args), care=Care.READ)


def _register(
    transaction: Transaction, *, forms: Sequence[tuple[str, bytes, str]], origin: Origin, worker: str
) -> None:
    now = transaction.now
    rows = [(*form, origin, worker, now, now) for form in forms]
    run_each(transaction.connection, _TELL, rows)
    transaction.connection.execute(_FORGET, (now - KEPT_MS,))


def _find(transaction: Transaction, *, wanted: Sequence[str]) -> list[RegisteredTask]:
    return [
        RegisteredTask(
            registration=decode_registration(content), origin=origin, worker=worker, first=first, last=last
        )
        for content, origin, worker, first, last in select_each(transaction.connection, _FIND, wanted)
    ]


def _names(transaction: Transaction, *, args: tuple[object, ...]) -> list[str]:
    return [row[0] for row in transaction.connection.execute(_NAMES, args).fetchall()]
