"""Submission of jobs, new or repeated."""

from collections.abc import Sequence
from typing import Any, Final

from taskmq.contracts.jobs import DependencyRefusal, NewJob, Submitted, over_quota, rename_dependencies
from taskmq.errors import InvalidOption
from taskmq.model.jobs.changes import ready_state
from taskmq.model.jobs.dependencies import generations
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.jobs.values import encode_detail
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text, shard_of
from taskmq_sql.sqlite.jobs.dependencies import Upstream, depends_on
from taskmq_sql.sqlite.jobs.unique_keys import claim
from taskmq_sql.sqlite.quotas import Room, quotas

_KEYS: Final = "SELECT key, tenant, id, fingerprint FROM job_key WHERE key IN (@values)"
_LIVE: Final = "SELECT id, state, version FROM job WHERE id IN (@values)"
_ENDED: Final = "SELECT id, state, version FROM job_history WHERE id IN (@values)"
_NEW: Final = """
    INSERT INTO job (id, state, version, attempt, token, tenant, queue, task, priority, due, expires, key, detail,
        body, run, step, child)
    VALUES @rows
"""

_NO_STEP: Final = (None, None, None)

_Key = tuple[str, int]


def submit(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Submitted]:
    """Store the jobs that the quotas admit; return the answers in order."""
    said = quotas(transaction)
    room = Room(transaction, said, jobs) if said.quotas else None
    answers = _Submission(transaction, jobs, room).run()
    if room is not None:
        room.write()
    return answers


def occur(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Submitted]:
    """Store the jobs of schedules, which no quota refuses; return the answers in order."""
    return _Submission(transaction, jobs, None).run()


def find_key(transaction: Transaction, tenant: str, key: str) -> str | None:
    """Return the id of the job to which the tenant's submitter gave this key."""
    number = transaction.names.find(transaction.connection, tenant)
    if number is None:
        return None
    rows = transaction.connection.execute(
        "SELECT id FROM job_key WHERE key = ? AND tenant = ?", (storable(key), number)
    ).fetchall()
    return id_text(rows[0][0]) if rows else None


class _Submission:
    """The jobs of one submission."""

    def __init__(self, transaction: Transaction, jobs: Sequence[NewJob], room: Room | None) -> None:
        self._room = room
        self._transaction = transaction
        self._connection = transaction.connection
        self._names = transaction.names
        self._now = transaction.now
        self._jobs = [(_id(job), self._names.id(self._connection, job.tenant), job) for job in jobs]
        self._known: dict[bytes, tuple[int, int]] = {}
        self._keys: dict[_Key, tuple[bytes, bytes]] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._ready: list[tuple[Any, ...]] = []
        self._timers: list[tuple[Any, ...]] = []
        self._new_keys: list[tuple[Any, ...]] = []
        self._labels: list[tuple[Any, ...]] = []
        self._lines: list[tuple[Any, ...]] = []

    def run(self) -> list[Submitted]:
        self._look_up()
        if any(depends_on(job) for _, _, job in self._jobs):
            return self._run_in_turns()
        answers = [self._submit(job_id, tenant, job) for job_id, tenant, job in self._jobs]
        self._write()
        return answers

    def _run_in_turns(self) -> list[Submitted]:
        """Submit each job after its dependencies in the same call."""
        upstream = {job.id: [each.id for each in depends_on(job)] for _, _, job in reversed(self._jobs)}
        groups, circular = generations(upstream)
        turns = {job_id: turn for turn, group in enumerate(groups) for job_id in group}
        answers: dict[int, Submitted] = {}
        # If a job was already submitted under another id, its dependents wait for that id.
        known: dict[str, str] = {}
        for index, (job_id, tenant, job) in sorted(
            enumerate(self._jobs), key=lambda each: (turns.get(each[1][2].id, 0), each[0])
        ):
            if job.id in circular:
                other = next(each for each in upstream[job.id] if each in circular)
                answers[index] = _refuse(job, DependencyRefusal(other, "cycle"))
                continue
            answers[index] = answer = self._submit(job_id, tenant, rename_dependencies(job, known))
            if answer.is_same:
                known[job.id] = answer.id
        self._write()
        return [answers[index] for index in range(len(self._jobs))]

    def _write(self) -> None:
        """Insert the jobs collected so far."""
        run_each(self._connection, _NEW, self._rows)
        run_each(self._connection, "INSERT INTO ready (queue, priority, tenant, due, id) VALUES @rows", self._ready)
        run_each(self._connection, "INSERT INTO timer (shard, due, id) VALUES @rows", self._timers)
        run_each(self._connection, "INSERT INTO job_key (key, tenant, id, fingerprint) VALUES @rows", self._new_keys)
        run_each(self._connection, "INSERT INTO label (name, value, id) VALUES @rows", self._labels)
        run_each(self._connection, "INSERT INTO claim_line (name, id, queue) VALUES @rows", self._lines)
        for rows in (self._rows, self._ready, self._timers, self._new_keys, self._labels, self._lines):
            rows.clear()

    def _claim(self, job_id: bytes, job: NewJob, key: UniqueKey) -> Submitted | None:
        """Give the job its unique key; if another job owns the key, return the answer."""
        # The owner may be among the jobs collected so far.
        self._write()
        holder = claim(self._transaction, job, job_id, key)
        if holder is None:
            return None
        return Submitted(holder.id, False, False, holder.state, holder.version, is_duplicate=True)

    def _look_up(self) -> None:
        """Read the jobs that have these keys and ids."""
        keys = [storable(job.key) for _, _, job in self._jobs if job.key is not None]
        for key, tenant, job_id, fingerprint in select_each(self._connection, _KEYS, keys):
            self._keys[key, tenant] = (job_id, fingerprint)
        ids = [job_id for job_id, _, _ in self._jobs]
        ids += [job_id for job_id, _ in self._keys.values()]
        for statement in (_LIVE, _ENDED):
            for job_id, state, version in select_each(self._connection, statement, ids):
                self._known[job_id] = (state, version)

    def _submit(self, job_id: bytes, tenant: int, job: NewJob) -> Submitted:
        key = None if job.key is None else storable(job.key)
        if key is not None and (first := self._keys.get((key, tenant))) is not None:
            return self._answer_repeated(first[0], is_same=first[1] == job.fingerprint)
        if job_id in self._known:
            return self._answer_repeated(job_id, is_same=True)
        if self._room is None:
            return self._make(job_id, tenant, job, key)
        if (excess := self._room.admit(job)) is not None:
            return over_quota(job, excess)
        answer = self._make(job_id, tenant, job, key)
        if not answer.is_new:
            self._room.take_back(job)
        return answer

    def _make(self, job_id: bytes, tenant: int, job: NewJob, key: str | None) -> Submitted:
        """Create the job if its dependencies and its unique key allow it."""
        upstream = None
        if depends_on(job):
            # Some dependencies may be in the same call.
            self._write()
            upstream = Upstream(self._transaction, depends_on(job))
            if (refusal := upstream.refusal(tenant)) is not None:
                return _refuse(job, refusal)
        if job.unique is not None:
            if (answer := self._claim(job_id, job, job.unique)) is not None:
                return answer
            if upstream is not None:
                # The job that owned the key may be one of the dependencies, and has ended now.
                upstream = Upstream(self._transaction, depends_on(job))
        due = max(job.due, self._now)
        waits = upstream is not None and upstream.add(job_id)
        state = JobState.HELD if job.held else JobState.WAITING if waits else ready_state(due, self._now)
        self._known[job_id] = (CODES[state], 1)
        if key is not None:
            self._keys[key, tenant] = (job_id, job.fingerprint)
            self._new_keys.append((key, tenant, job_id, job.fingerprint))
        self._add(job_id, tenant, job, key=key, due=due, state=state)
        return Submitted(job.id, True, True, state, 1)

    def _answer_repeated(self, job_id: bytes, *, is_same: bool) -> Submitted:
        state, version = self._known[job_id]
        return Submitted(id_text(job_id), False, is_same, STATES[state], version)

    def _add(self, job_id: bytes, tenant: int, job: NewJob, *, key: str | None, due: int, state: JobState) -> None:
        queue = self._names.id(self._connection, job.queue)
        task = self._names.id(self._connection, job.task)
        detail = None if job.detail is None else encode_detail(job.detail)
        self._rows.append(
            (
                job_id,
                CODES[state],
                1,
                1,
                0,
                tenant,
                queue,
                task,
                job.priority,
                due,
                job.expires,
                key,
                detail,
                job.body,
                *(_NO_STEP if job.step is None else (id_bytes(job.step.run), job.step.name, job.step.child)),
            )
        )
        if state is JobState.QUEUED:
            self._ready.append((queue, job.priority, tenant, due, job_id))
        elif state is JobState.SCHEDULED:
            self._timers.append((shard_of(job_id), due, job_id))
        if job.line is not None:
            self._lines.append((storable(job.line), job_id, queue))
        if job.detail is not None:
            labels = {(storable(name), storable(value)) for name, value in job.detail.labels.items()}
            self._labels += [(name, value, job_id) for name, value in labels]


def _refuse(job: NewJob, refusal: DependencyRefusal) -> Submitted:
    return Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)


def _id(job: NewJob) -> bytes:
    found = id_bytes(job.id)
    if found is None:
        raise InvalidOption(f"{job.id[:100]!r} is not a UUID, which the id of a stored job must be")
    return found
