"""A job store of one process without a file, for tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from taskmq.contracts.jobs import NewJob, Submitted
from taskmq.model.clock import Clock
from taskmq_embedded.memory import MemoryThread
from taskmq_sql.sqlite.caller_transactions import CallerTransactions
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.store import SqliteJobStore

__all__ = ["MemoryJobStore"]

T = TypeVar("T")


class MemoryJobStore(SqliteJobStore):
    """A `SqliteJobStore` in memory, on `taskmq_embedded.memory`.

    Jobs submitted with a `connection=` of SQLAlchemy, to whatever database, exist once its transaction has committed.

    Args:
        of: scheme of the store that this one replaces; it decides which `connection=` is accepted. "": any
            connection that announces its commits.
    """

    def __init__(self, address: str, path: Path, *, clock: Clock, keep_days: int = 30, of: str = "") -> None:
        super().__init__(address, path, clock=clock, keep_days=keep_days)
        assert isinstance(self._writer, MemoryThread)
        self._transactions = CallerTransactions(self._writer, of=of)

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        return await super().submit(jobs) if connection is None else self._transactions.submit(connection, jobs)

    async def _look_up(self, read: Callable[[Transaction], T], connection: Any) -> T:
        if connection is None:
            return await super()._look_up(read, None)
        return self._transactions.read(connection, read)
