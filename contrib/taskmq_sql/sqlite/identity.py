"""Calls of `taskmq_sql.identity` in transactions of sqlite3."""

from collections.abc import Sequence
from typing import TypeVar

from taskmq.model.units import storable
from taskmq_sql.identity.steps import LOCK, Query, Row, Steps, Work
from taskmq_sql.sqlite.file.connection import Care, Transaction
from taskmq_sql.sqlite.file.thread import FileThread

__all__ = ["SqliteRunner", "drive"]

T = TypeVar("T")


class SqliteRunner:
    """A `Runner` on the threads of a file: one writes at a time, so nothing has to be locked."""

    def __init__(self, writer: FileThread, reader: FileThread) -> None:
        self._writer = writer
        self._reader = reader

    async def read(self, work: Work[T]) -> T:
        return await self._reader.call(lambda transaction: _call(transaction, work), care=Care.READ)

    async def write(self, work: Work[T]) -> T:
        return await self._writer.call(lambda transaction: _call(transaction, work), care=Care.DURABLE)


def _call(transaction: Transaction, work: Work[T]) -> T:
    return drive(transaction, work(transaction.now))


def drive(transaction: Transaction, steps: Steps[T]) -> T:
    """What a call comes to, in a transaction."""
    try:
        query = next(steps)
        while True:
            query = steps.send(_rows(transaction, query))
    except StopIteration as end:
        result: T = end.value
        return result


def _rows(transaction: Transaction, query: Query) -> Sequence[Row]:
    if query is LOCK:
        return ()
    values = {
        str(place): storable(each) if isinstance(each, str) else each for place, each in enumerate(query.args, 1)
    }
    return transaction.connection.execute(query.text.replace("taskmq.", ""), values).fetchall()
