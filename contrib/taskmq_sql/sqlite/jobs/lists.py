"""Pages and counts of jobs."""

from collections.abc import Sequence
from typing import Any, Final

from taskmq.contracts.jobs import JobPage, JobRecord, StateCounts
from taskmq.model.jobs.filters import UNSUCCESSFUL, JobFilter
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import ENDED, first_id, id_bytes
from taskmq_sql.sqlite.jobs.records import LISTED, LISTED_ENDED, record

_NOTHING: Final = "0"
_SUCCEEDED: Final = CODES[JobState.SUCCEEDED]
_RUNNING: Final = CODES[JobState.RUNNING]
_WAITS_FOR_WORKER: Final = f"({CODES[JobState.QUEUED]}, {CODES[JobState.DISPATCHED]})"
# A retry or a pause moves `due`, possibly past the first start.
_STARTS: Final = "WHEN first_started >= due THEN first_started WHEN started >= due THEN started"
_WAIT_ENDED: Final = f"CASE {_STARTS} END"
_WAIT_ENDS: Final = f"CASE {_STARTS} WHEN state IN {_WAITS_FOR_WORKER} THEN ? END"


def list_jobs(transaction: Transaction, which: JobFilter, after: str | None, limit: int) -> JobPage:
    """Return up to `limit` jobs, newest first, after the cursor `after`."""
    found: list[JobRecord] = []
    if limit <= 0:
        return JobPage([], None)
    for table, columns in (("job", LISTED), ("job_history", LISTED_ENDED)):
        condition = _Condition(transaction, which, table)
        if after is not None:
            condition.add_cursor(after)
        rows = transaction.connection.execute(
            f"SELECT {columns} FROM {table} WHERE {condition.text} ORDER BY id DESC LIMIT ?",
            (*condition.values, limit + 1),
        ).fetchall()
        found += [record(transaction, row) for row in rows]
    found.sort(key=_id, reverse=True)
    return JobPage(found[:limit], found[limit - 1].id if len(found) > limit else None)


def count_jobs(transaction: Transaction, which: JobFilter, cap: int) -> int:
    """Return the number of matching jobs; `cap` + 1 if there are more than `cap`."""
    count = 0
    for table in ("job", "job_history"):
        condition = _Condition(transaction, which, table)
        count += transaction.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition.text} LIMIT ?)",
            (*condition.values, cap + 1 - count),
        ).fetchone()[0]
        if count > cap:
            break
    return count


def count_states(transaction: Transaction, which: JobFilter, cap: int) -> StateCounts:
    """Count matching jobs by state, up to `cap` live and `cap` ended ones."""
    counts: dict[JobState, int] = {}
    is_exact = True
    for table in ("job", "job_history"):
        condition = _Condition(transaction, which, table)
        rows = transaction.connection.execute(
            "SELECT state, count(*) FROM"
            f" (SELECT state FROM {table} WHERE {condition.text} ORDER BY id DESC LIMIT ?) GROUP BY state",
            (*condition.values, cap),
        ).fetchall()
        counts |= {STATES[state]: count for state, count in rows}
        is_exact = is_exact and sum(count for _, count in rows) < cap
    return StateCounts(counts, is_exact)


class _Condition:
    """A filter as an SQL condition on the rows of a table.

    Attributes:
        values: its parameters, in order.
    """

    def __init__(self, transaction: Transaction, which: JobFilter, table: str) -> None:
        self.values: list[Any] = []
        self._texts = ["1"]
        self._transaction = transaction
        self._is_history = table == "job_history"
        if which.via == "broker":
            self._add(_NOTHING)
        self._add_states(which)
        self._add_names(which)
        self._add_times(which)
        self._add_rest(which)
        self._add_retried(which)

    @property
    def text(self) -> str:
        return " AND ".join(self._texts)

    def add_cursor(self, after: str) -> None:
        """Restrict to jobs after the cursor."""
        job_id = id_bytes(after)
        if job_id is None:
            self._add(_NOTHING)
        else:
            self._add("id < ?", job_id)

    def _add(self, text: str, *values: Any) -> None:
        self._texts.append(text)
        self.values += values

    def _add_any(self, column: str, values: Sequence[Any]) -> None:
        if not values:
            self._add(_NOTHING)
        elif len(values) == 1:
            self._add(f"{column} = ?", *values)
        else:
            self._add(f"{column} IN ({','.join('?' * len(values))})", *values)

    def _add_states(self, which: JobFilter) -> None:
        if not which.states:
            return
        codes = {CODES[state] for state in which.states if state in CODES}
        codes = codes & ENDED if self._is_history else codes - ENDED
        if self._is_history and codes >= ENDED:
            return
        self._add_any("state", sorted(codes))
        if self._is_history and codes and _SUCCEEDED not in codes:
            # Written like the condition of the partial indexes.
            self._add(f"state <> {_SUCCEEDED}")

    def _add_names(self, which: JobFilter) -> None:
        connection, names = self._transaction.connection, self._transaction.names
        if which.tenant is not None:
            self._add_any("tenant", names.find_all(connection, [which.tenant]))
        if which.tasks:
            self._add_any("task", names.find_all(connection, which.tasks))
        if which.task_prefix:
            prefix = storable(which.task_prefix)
            self._add(
                "task IN (SELECT n.id FROM name AS n WHERE n.name >= ? AND substr(n.name, 1, ?) = ?)",
                prefix,
                len(prefix),
                prefix,
            )
        if which.queues:
            self._add_any("queue", names.find_all(connection, which.queues))
        if which.keys:
            marks = ",".join("?" * len(which.keys))
            keys = [storable(key) for key in which.keys]
            self._add(f"id IN (SELECT k.id FROM job_key AS k WHERE k.key IN ({marks}))", *keys)
        if which.ids:
            ids = [id_bytes(job_id) for job_id in which.ids]
            self._add_any("id", [job_id for job_id in ids if job_id is not None])

    def _add_times(self, which: JobFilter) -> None:
        if which.submitted_from is not None:
            self._add("id >= ?", first_id(which.submitted_from))
        if which.submitted_before is not None:
            self._add("id < ?", first_id(which.submitted_before))
        if which.due_from is not None:
            self._add("due >= ?", which.due_from)
        if which.due_before is not None:
            self._add("due < ?", which.due_before)
        for sign, instant in ((">=", which.finished_from), ("<", which.finished_before)):
            if instant is not None and self._is_history:
                self._add(f"finished {sign} ?", instant)
            elif instant is not None:
                self._add(_NOTHING)

    def _add_rest(self, which: JobFilter) -> None:
        if which.errors:
            self._add_any("error_type", [storable(name) for name in which.errors])
        if which.min_attempt is not None:
            self._add("attempt >= ?", which.min_attempt)
        if which.min_ran is not None:
            if self._is_history:
                self._add("finished - started >= ?", which.min_ran)
            else:
                self._add(f"state = {_RUNNING} AND ? - started >= ?", self._transaction.now, which.min_ran)
        if which.min_waited is not None:
            if self._is_history:
                self._add(f"{_WAIT_ENDED} - due >= ?", which.min_waited)
            else:
                self._add(f"{_WAIT_ENDS} - due >= ?", self._transaction.now, which.min_waited)
        for name, value in which.labels:
            self._add(
                "id IN (SELECT l.id FROM label AS l WHERE l.name = ? AND l.value = ?)",
                storable(name),
                storable(value),
            )

    def _add_retried(self, which: JobFilter) -> None:
        if not self._is_history:
            if which.retried == "yes":
                self._add(_NOTHING)
            return
        if which.retried in ("yes", "no"):
            self._add(f"retried_as IS {'NOT ' if which.retried == 'yes' else ''}NULL")
        elif not which.retried and which.states & UNSUCCESSFUL:
            self._add(f"(retried_as IS NULL OR state = {_SUCCEEDED})")


def _id(job: JobRecord) -> str:
    return job.id
