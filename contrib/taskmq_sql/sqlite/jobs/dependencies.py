"""Jobs that wait for others: their dependencies, and their fate when those end."""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import DependencyRefusal, NewJob, Released
from taskmq.model.jobs.changes import ready_state
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency, after_upstream, end_reason
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES, CONDITION_CODES, CONDITIONS, STATES
from taskmq_sql.sqlite.file.sets import in_each, run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.live_jobs import LiveJob, load, note_ends, save

_HELD: Final = CODES[JobState.HELD]
_WAITING: Final = frozenset({CODES[JobState.WAITING], _HELD})
_UPSTREAM: Final = (
    "SELECT id, tenant, state FROM job WHERE id IN (@values)",
    "SELECT id, tenant, state FROM job_history WHERE id IN (@values)",
)
_EDGES: Final = "SELECT dependent, condition FROM dependency WHERE upstream = ? ORDER BY dependent LIMIT ?"
_ENDS_OF: Final = "SELECT number, id, state FROM upstream_end WHERE id IN (@values)"
_MANY: Final = 500
_KEEP: Final = """
    INSERT OR IGNORE INTO failed_dependency SELECT upstream, dependent, condition FROM dependency WHERE dependent = ?
"""
_UNMET: Final = "SELECT upstream, condition FROM dependency WHERE dependent = ? ORDER BY upstream LIMIT ?"


class Upstream:
    """The dependencies of one new job, with the states of the upstream jobs."""

    def __init__(self, transaction: Transaction, dependencies: Sequence[JobDependency]) -> None:
        self._transaction = transaction
        self._dependencies = [(id_bytes(each.id), each) for each in dependencies]
        ids = [job_id for job_id, _ in self._dependencies if job_id is not None]
        self._found: dict[bytes, tuple[int, JobState]] = {}
        for statement in _UPSTREAM:
            for job_id, tenant, state in select_each(transaction.connection, statement, ids):
                self._found[job_id] = (tenant, STATES[state])

    def refusal(self, tenant: int) -> DependencyRefusal | None:
        """Return why a job of this tenant cannot depend on them; None if it can."""
        for job_id, each in self._dependencies:
            if job_id is None or job_id not in self._found or self._found[job_id][0] != tenant:
                return DependencyRefusal(each.id, "unknown")
        return None

    def unmet(self) -> list[tuple[bytes, DependencyCondition, JobState]]:
        """Return the unmet dependencies, with the states of the upstream jobs."""
        found = [(job_id, each, self._found[job_id][1]) for job_id, each in self._dependencies if job_id is not None]
        return [
            (job_id, each.condition, state)
            for job_id, each, state in found
            if state not in TERMINAL or after_upstream(each.condition, state) is not None
        ]

    def add(self, dependent: bytes) -> bool:
        """Record the job's unmet dependencies; return whether there are any."""
        connection = self._transaction.connection
        edges = [(job_id, dependent, CONDITION_CODES[condition], state) for job_id, condition, state in self.unmet()]
        run_each(
            connection,
            "INSERT OR IGNORE INTO dependency (upstream, dependent, condition) VALUES @rows",
            [edge[:3] for edge in edges],
        )
        live = [edge[0] for edge in edges if edge[3] not in TERMINAL]
        in_each(connection, "UPDATE job SET has_dependents = 1 WHERE id IN (@values)", live)
        ended = [(edge[0], CODES[edge[3]]) for edge in edges if edge[3] in TERMINAL]
        run_each(connection, "INSERT INTO upstream_end (id, state) VALUES @rows", ended)
        return bool(edges)


def depends_on(job: NewJob) -> Sequence[JobDependency]:
    """Return the dependencies of a new job."""
    return () if job.detail is None else job.detail.depends_on


def unmet(transaction: Transaction, job_id: str, limit: int) -> list[JobDependency]:
    """Return the dependencies that a job still waits for."""
    rows = transaction.connection.execute(_UNMET, (id_bytes(job_id), limit)).fetchall()
    return [JobDependency(id_text(upstream), CONDITIONS[condition]) for upstream, condition in rows]


def has_ends(transaction: Transaction) -> bool:
    """Whether ends of upstream jobs are yet to be processed."""
    return transaction.connection.execute("SELECT 1 FROM upstream_end LIMIT 1").fetchone() is not None


def release(transaction: Transaction, limit: int) -> Released:
    """Process up to `limit` dependencies, earliest ends first."""
    connection = transaction.connection
    queues: set[int] = set()
    left = limit
    while left:
        row = connection.execute("SELECT number, id, state FROM upstream_end ORDER BY number LIMIT 1").fetchone()
        if row is None:
            break
        number, upstream, state = row
        edges = connection.execute(_EDGES, (upstream, left)).fetchall()
        if edges:
            queues |= _settle(transaction, upstream, STATES[state], edges)
        left -= len(edges)
        if left:
            connection.execute("DELETE FROM upstream_end WHERE number = ?", (number,))
    names = {transaction.names.name(connection, queue) for queue in queues}
    return Released(frozenset(names), has_ends(transaction))


def settle_ends_of(transaction: Transaction, ids: Sequence[bytes]) -> None:
    """Apply the recorded ends of these jobs to all their dependents."""
    connection = transaction.connection
    for number, upstream, state in select_each(connection, _ENDS_OF, ids):
        while edges := connection.execute(_EDGES, (upstream, _MANY)).fetchall():
            _settle(transaction, upstream, STATES[state], edges)
        connection.execute("DELETE FROM upstream_end WHERE number = ?", (number,))


def _settle(
    transaction: Transaction, upstream: bytes, state: JobState, edges: Sequence[tuple[bytes, int]]
) -> set[int]:
    """Resolve dependencies on one job; return the queues that received ready jobs."""
    connection, now = transaction.connection, transaction.now
    jobs = {
        job_id: job
        for job_id, job in load(transaction, [dependent for dependent, _ in edges]).items()
        if job.state in _WAITING
    }
    failed = [(job_id,) for job_id, code in edges if job_id in jobs and after_upstream(CONDITIONS[code], state)]
    connection.executemany(_KEEP, failed)
    connection.executemany(
        "DELETE FROM dependency WHERE upstream = ? AND dependent = ?",
        [(upstream, dependent) for dependent, _ in edges],
    )
    queues: set[int] = set()
    for dependent, code in edges:
        if (job := jobs.get(dependent)) is None:
            continue
        dependency = JobDependency(id_text(upstream), CONDITIONS[code])
        if (after := after_upstream(dependency.condition, state)) is not None:
            job.step(after, now=now)
            job.give_reason(end_reason(dependency, state))
        elif connection.execute(_UNMET, (dependent, 1)).fetchone() is None:
            _free(job, now)
            if job.state == CODES[JobState.QUEUED]:
                queues.add(job.queue)
    save(transaction, jobs.values())
    note_ends(transaction, jobs.values())
    return queues


def _free(job: LiveJob, now: int) -> None:
    """Make a job ready that waits for nothing any more. A held job gets a new version, for concurrent releases."""
    if job.state == _HELD:
        job.step(JobState.HELD, now=now)
        return
    job.due = max(job.due, now)
    job.step(ready_state(job.due, now), now=now)
