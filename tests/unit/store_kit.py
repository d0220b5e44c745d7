"""Job stores in memory that fail as configured, and access to their rows between two loop iterations."""

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from taskmq.contracts.jobs import PARTITIONS, HistoryEntry, JobRecord
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StoreUnavailable
from taskmq.model.clock import Clock
from taskmq_embedded.memory import MemoryThread
from taskmq_sql.sqlite.file.schema import JOB_STORE
from taskmq_sql.sqlite.file.transaction import Transaction, transactions
from taskmq_sql.sqlite.jobs import records
from taskmq_sql.sqlite.jobs.codes import id_text
from taskmq_sql.sqlite.store import SqliteJobStore

T = TypeVar("T")


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call that never waits, as those of a store in memory."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise AssertionError("it waits for something")


class Database:
    """A job store's database in memory, which exists while this object does, and its rows.

    Args:
        partitions: number of partitions of its queues and timers.
    """

    def __init__(self, clock: Clock | None = None, *, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.path = Path(f":memory:{uuid4().hex}")
        self._thread = MemoryThread(self.path, JOB_STORE, transactions((clock or SystemClock()).now_ms))

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """Return all jobs by their ids."""
        ids = self.ask("SELECT id FROM job UNION SELECT id FROM job_history ORDER BY id")
        return {job.id: job for job in map(self.job, (id_text(each) for (each,) in ids))}

    @property
    def live(self) -> int:
        """Return the number of jobs that have not ended."""
        return int(self.ask("SELECT count(*) FROM job")[0][0])

    @property
    def gates(self) -> dict[str, str]:
        """Return the gates of the waiting jobs, by their ids."""
        return {id_text(job): str(gate) for job, gate in self.ask("SELECT id, gate FROM gated ORDER BY gate, id")}

    def job(self, job_id: str) -> JobRecord:
        found = self._thread.ask(partial(records.get, job_id=job_id))
        assert found is not None, f"there is no job {job_id}"
        return found

    def events(self, job_id: str) -> list[HistoryEntry]:
        return self._thread.ask(partial(records.events, job_id=job_id))

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """Run a raw statement, even a change that no store would make; return its rows."""
        return self._thread.ask(lambda transaction: transaction.connection.execute(statement, values).fetchall())

    def dump(self) -> str:
        """Return all data as SQL."""
        return self._thread.ask(lambda transaction: "\n".join(transaction.connection.iterdump()))


class StagedStore(SqliteJobStore):
    """A store on a database; several stores on one database act like several processes.

    Attributes:
        is_reachable: if False, every call raises, as in an outage.
        asked: number of calls.
    """

    def __init__(self, database: Database | None = None, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.database = database or Database(self.clock)
        self._partitions = self.database.partitions
        super().__init__("memory://jobs", self.database.path, clock=self.clock)
        self.is_reachable = True
        self.asked = 0
        assert isinstance(self._writer, MemoryThread)
        vars(self._writer)["ask"] = partial(self._ask, self._writer.ask)

    def _ask(self, ask: Callable[[Callable[[Transaction], Any]], Any], function: Callable[[Transaction], Any]) -> Any:
        self.asked += 1
        if not self.is_reachable:
            raise StoreUnavailable(f"{self.address} is not reachable")
        return ask(function)
