"""Submission: one statement inserts all jobs of a call; jobs that already exist are looked up for the answer.

Two kinds of jobs cost more. Unique keys are locked first, in one fixed order. Jobs with dependencies are inserted as
held, and the same transaction records their dependencies.

Each statement sees what was committed when it began. So an existing job may be erased before the lookup; then the
submission inserts its job again, if the quotas have room.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from msgspec import structs

from taskmq.contracts.jobs import (
    DependencyRefusal,
    NewJob,
    PartitionHold,
    Submitted,
    over_quota,
    partition_key,
    rename_dependencies,
    replacement,
)
from taskmq.model.jobs.dependencies import JobDependency, generations
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey, availability
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import chances, encode_detail
from taskmq_sql.postgres.changes import change_in
from taskmq_sql.postgres.connections import Connection, column_of, shared_column
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import Unmet, find_upstream, wait
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.quotas import Admission, admit_jobs, has_quota, lock_usage
from taskmq_sql.postgres.statements.submission import SHARED, SUBMIT, SUBMIT_ALIKE, SUBMIT_AT_ONCE

_EXISTING: Final = """
select i.id, coalesce(j.state, h.state) as state, coalesce(j.version, h.version) as version
from unnest($1::uuid[]) as i(id)
left join lateral (select id, state, version from taskmq.job where id = i.id offset 0) j on true
left join lateral (select state, version from taskmq.job_history where id = i.id order by ended desc limit 1) h
on j.id is null"""
_LOCK_KEYS: Final = """
insert into taskmq.unique_key (name, until) select name, 0 from unnest($1::text[]) as i(name)
on conflict (name) do update set until = unique_key.until"""
_HOLDER: Final = """
select u.id, u.until, coalesce(j.state, h.state) as state, coalesce(j.version, h.version) as version,
       coalesce(j.attempt > 1 or coalesce(j.first_started, j.started) is not null, true) as has_run,
       taskmq.now_ms() as now
from (select id, until from taskmq.unique_key where name = $1 offset 0) u
left join lateral (select state, version, attempt, started, first_started from taskmq.job where id = u.id offset 0) j
on true
left join lateral (select state, version from taskmq.job_history where id = u.id order by ended desc limit 1) h
on j.state is null"""
_TAKE_KEYS: Final = """
update taskmq.unique_key u set id = i.id, until = taskmq.now_ms() + i.ttl
from unnest($1::text[], $2::uuid[], $3::bigint[]) as i(name, id, ttl) where u.name = any($1) and u.name = i.name"""
_KEYS: Final = """
select i.place, k.id, k.fingerprint from unnest($1::int[], $2::int[], $3::text[]) as i(place, tenant, key)
cross join lateral (select id, fingerprint from taskmq.job_key where tenant = i.tenant and key = i.key offset 0) k"""
_FREE_KEYS: Final = """
delete from taskmq.job_key where ctid = any(array(
  select d.ctid from unnest($1::int[], $2::text[], $3::uuid[]) as i(tenant, key, id) cross join lateral
    (select ctid from taskmq.job_key where tenant = i.tenant and key = i.key and id = i.id for update) d))"""

_QUEUE_UP: Final = """
insert into taskmq.claim_line (name, id, queue)
select name, id, queue from unnest($1::text[], $2::uuid[], $3::int[]) with ordinality as i(name, id, queue, number)
order by number"""

_NO_STEP: Final = (None, None, None)
_Insert = Callable[[Connection, Sequence[NewJob], "Numbers"], Awaitable[list[Submitted]]]


class Numbers:
    """Names of the jobs as numbers of the tables."""

    def __init__(self, tenants: dict[str, int], queues: dict[str, int], tasks: dict[str, int]) -> None:
        self.tenants = tenants
        self.queues = queues
        self.tasks = tasks


async def submit(
    database: Database, jobs: Sequence[NewJob], connection: Connection | None, *, quotas: Quotas
) -> list[Submitted]:
    """Implement `JobStore.submit`, in the caller's transaction if a connection is given."""
    is_limited = has_quota(quotas, jobs)
    are_alike = connection is None and not is_limited and _are_alike(jobs)
    numbers = await numbers_of(database.names, jobs[:1] if are_alike else jobs)

    async def work(connection: Connection) -> list[Submitted]:
        return await insert_within(connection, jobs, numbers, quotas)

    if connection is not None:
        return await work(connection)
    if is_limited or any(job.unique is not None or job.line is not None or _depends_on(job) for job in jobs):
        return await database.submits.run("transaction", work)

    async def insert(connection: Connection) -> list[Submitted]:
        if any(job.key is not None for job in jobs):
            return await work(connection)
        try:
            if are_alike:
                return await _submit_alike(connection, jobs, numbers)
            return await _submit(connection, jobs, numbers, may_exist=False)
        except asyncpg.UniqueViolationError:
            # A repeated call: an id exists. Checking for that in every call would cost the server a fifth more.
            return await work(connection)

    return await database.submits.run("statement", insert)


async def insert_within(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, quotas: Quotas
) -> list[Submitted]:
    """Submit the jobs as far as their quotas allow, in the connection's transaction."""
    if has_quota(quotas, jobs):
        return await _insert_within_quotas(connection, jobs, numbers, quotas)
    return await insert_jobs(connection, jobs, numbers)


async def numbers_of(names: Names, jobs: Sequence[NewJob]) -> Numbers:
    """Return the numbers of the jobs' names, creating missing ones outside the transaction that inserts the jobs."""
    return Numbers(
        await names.ids("tenant", (job.tenant for job in jobs)),
        await names.ids("queue", (job.queue for job in jobs)),
        await names.ids("task", (job.task for job in jobs)),
    )


async def _insert_within_quotas(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, quotas: Quotas
) -> list[Submitted]:
    """Submit the jobs as far as their quotas allow."""
    usage = await lock_usage(connection, quotas, jobs)
    # Read after the lock: a concurrent submission of the same jobs has finished, or waits.
    known = await _find_existing(connection, jobs, numbers)
    indexes = [index for index in _in_turns(jobs) if index not in known]
    admission = await admit_jobs(connection, quotas, jobs, indexes, tenants=numbers.tenants, usage=usage)
    over = admission.over
    rest = [index for index in range(len(jobs)) if index not in over]
    made = await insert_jobs(connection, [jobs[index] for index in rest], numbers, admission) if rest else []
    answers = dict(zip(rest, made, strict=True))
    await admission.write(connection, {answer.id for answer in made if answer.is_new})
    return [over_quota(job, over[index]) if index in over else answers[index] for index, job in enumerate(jobs)]


def _in_turns(jobs: Sequence[NewJob]) -> list[int]:
    """Return the indexes of the jobs, each after its dependencies; jobs in cycles are left out."""
    groups, _ = generations(_upstream(jobs))
    turns = {job_id: turn for turn, group in enumerate(groups) for job_id in group}
    return sorted(
        (index for index, job in enumerate(jobs) if job.id in turns), key=lambda index: (turns[jobs[index].id], index)
    )


def _upstream(jobs: Sequence[NewJob]) -> dict[str, list[str]]:
    return {job.id: [each.id for each in _depends_on(job)] for job in reversed(jobs)}


async def insert_jobs(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None = None
) -> list[Submitted]:
    """Submit within the open transaction of the connection.

    Args:
        admission: also counts jobs that existed at admission and were erased meanwhile.
    """
    if any(job.detail is not None and job.detail.depends_on for job in jobs):
        return await _insert_in_turns(connection, jobs, numbers, admission)
    return await _insert_by(_insert_jobs, connection, jobs, numbers, admission)


async def _insert_by(
    insert: _Insert, connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None
) -> list[Submitted]:
    """Submit, and repeat the jobs whose existing counterparts were erased meanwhile."""
    answers = await insert(connection, jobs, numbers)
    while True:
        if admission is not None:
            _count_inserted(jobs, answers, admission)
        if not (erased := [index for index, answer in enumerate(answers) if _is_erased(answer)]):
            return answers
        again = await insert(connection, [jobs[index] for index in erased], numbers)
        for index, answer in zip(erased, again, strict=True):
            answers[index] = answer


def _count_inserted(jobs: Sequence[NewJob], answers: list[Submitted], admission: Admission) -> None:
    """Count the inserted jobs; refuse jobs to be repeated if their quotas have no room."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.is_new:
            admission.count(job)
    for index, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        if _is_erased(answer) and (excess := admission.admit(job)) is not None:
            answers[index] = over_quota(job, excess)


def _is_erased(answer: Submitted) -> bool:
    return answer.state is JobState.UNKNOWN and answer.refusal is None


async def _insert_in_turns(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None
) -> list[Submitted]:
    """Submit jobs that depend on each other, each after its dependencies in the same call."""
    indexes: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        indexes.setdefault(job.id, []).append(index)
    upstream = _upstream(jobs)
    groups, circular = generations(upstream)
    answers: dict[int, Submitted] = {}
    for job_id in circular:
        refusal = DependencyRefusal(next(each for each in upstream[job_id] if each in circular), "cycle")
        answers |= {index: _refuse(jobs[index], refusal) for index in indexes[job_id]}
    # If a job was already submitted under another id, its dependents wait for that id.
    known: dict[str, str] = {}
    for group in groups:
        turn = sorted(index for job_id in group for index in indexes[job_id])
        for index, answer in zip(
            turn,
            await _insert_by(
                _insert_waiting,
                connection,
                [rename_dependencies(jobs[index], known) for index in turn],
                numbers,
                admission,
            ),
            strict=True,
        ):
            answers[index] = answer
            if answer.is_same:
                known[jobs[index].id] = answer.id
    return [answers[index] for index in range(len(jobs))]


async def _insert_waiting(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs that do not depend on each other."""
    # Repeated submissions are found first: the present state of their dependencies does not matter.
    known = await _find_existing(connection, jobs, numbers)
    others = [each.id for index, job in enumerate(jobs) if index not in known for each in _depends_on(job)]
    found = await find_upstream(connection, others)
    answers: dict[int, Submitted] = {}
    unmet: dict[str, Unmet] = {}
    kept: list[int] = []
    for index, job in enumerate(jobs):
        if index not in known and (refusal := found.refusal(_depends_on(job), numbers.tenants[job.tenant])):
            answers[index] = _refuse(job, refusal)
            continue
        if index not in known and (left := found.unmet(_depends_on(job))):
            unmet[job.id] = left
        kept.append(index)
    made = [structs.replace(jobs[index], held=True) if jobs[index].id in unmet else jobs[index] for index in kept]
    for index, answer in zip(kept, await _insert_jobs(connection, made, numbers), strict=True):
        is_waiting = answer.is_new and jobs[index].id in unmet and not jobs[index].held
        answers[index] = structs.replace(answer, state=JobState.WAITING) if is_waiting else answer
    new = {jobs[index].id: jobs[index] for index in kept if answers[index].is_new}
    waiting = [(job, unmet[job_id]) for job_id, job in new.items() if job_id in unmet]
    if any(job.unique is not None for job, _ in waiting):
        # The job that owned the unique key may be one of the dependencies, and has ended now.
        found = await find_upstream(connection, others)
        waiting = [(job, found.refresh(left)) for job, left in waiting]
    await wait(connection, waiting)
    return [answers[index] for index in range(len(jobs))]


def _depends_on(job: NewJob) -> Sequence[JobDependency]:
    return () if job.detail is None else job.detail.depends_on


def _refuse(job: NewJob, refusal: DependencyRefusal) -> Submitted:
    return Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)


async def _insert_jobs(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs without dependencies."""
    if all(job.unique is None for job in jobs):
        return await _submit(connection, jobs, numbers)
    keys = {storable(job.unique.name) for job in jobs if job.unique is not None}
    await connection.execute(_LOCK_KEYS, sorted(keys))
    return [each for some in _by_turns(jobs) for each in await _submit_unique(connection, some, numbers)]


async def _submit(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, *, may_exist: bool = True
) -> list[Submitted]:
    """Submit jobs whose unique keys, if any, are free.

    Args:
        may_exist: whether ids may exist already; otherwise such an id fails the statement.
    """
    new = await _insert(connection, jobs, numbers, may_exist=may_exist)
    if any(job.line is not None for job in jobs):
        lines = {job.id: (job.line, job.queue) for job in reversed(jobs) if job.id in new}
        rows = [
            (storable(line), job_id, numbers.queues[queue])
            for job_id, (line, queue) in reversed(lines.items())
            if line is not None
        ]
        if rows:
            await connection.execute(_QUEUE_UP, *map(list, zip(*rows, strict=True)))
    answers: list[Submitted | None] = []
    for job in jobs:
        state = new.pop(job.id, None)
        answers.append(None if state is None else Submitted(job.id, True, True, STATES[state], 1))
    others = [index for index, answer in enumerate(answers) if answer is None]
    if others:
        await _answer(connection, jobs, numbers, answers, others)
    return [answer for answer in answers if answer is not None]


def _are_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs are ordinary ones that may run now, and differ in their ids and bodies only."""
    first = jobs[0]
    ordinary = NewJob(
        id=first.id, tenant=first.tenant, task=first.task, queue=first.queue, priority=first.priority, body=b""
    )
    return all(
        structs.replace(ordinary, id=job.id, body=job.body) == job and len(job.body) <= LONGEST_BODY for job in jobs
    )


async def _submit_alike(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit new jobs that `_are_alike`."""
    first = jobs[0]
    ids: object = first.id
    bodies: object = first.body
    if is_several := len(jobs) > 1:
        ids, bodies = [job.id for job in jobs], [job.body for job in jobs]
    await connection.execute(
        SUBMIT_ALIKE[not is_several],
        numbers.tenants[first.tenant],
        numbers.queues[first.queue],
        numbers.tasks[first.task],
        first.priority,
        ids,
        bodies,
    )
    return [Submitted(job.id, True, True, JobState.QUEUED, 1) for job in jobs]


def _by_turns(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """Split the jobs in order, so that each part has each unique key at most once."""
    turns: list[list[NewJob]] = [[]]
    names: set[str] = set()
    for job in jobs:
        if job.unique is not None and job.unique.name in names:
            turns.append([])
            names.clear()
        if job.unique is not None:
            names.add(job.unique.name)
        turns[-1].append(job)
    return turns


async def _submit_unique(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs, some of them with unique keys, all different."""
    # Repeated submissions are found first: they own their keys, or no longer need them.
    known = await _find_existing(connection, jobs, numbers)
    taken: dict[int, Submitted] = {}
    for index, job in enumerate(jobs):
        if job.unique is None or index in known:
            continue
        if (holder := await _claim(connection, job, job.unique)) is not None:
            taken[index] = Submitted(holder.id, False, False, holder.state, holder.version, is_duplicate=True)
    rest = iter(await _submit(connection, [job for index, job in enumerate(jobs) if index not in taken], numbers))
    answers = [taken[index] if index in taken else next(rest) for index in range(len(jobs))]
    new = [job for job, answer in zip(jobs, answers, strict=True) if answer.is_new and job.unique is not None]
    await connection.execute(
        _TAKE_KEYS,
        [storable(job.unique.name) for job in new if job.unique is not None],
        [job.id for job in new],
        [job.unique.ttl for job in new if job.unique is not None],
    )
    return answers


async def _find_existing(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> set[int]:
    """Return the indexes of jobs whose id or idempotency key exists."""
    keyed = [index for index, job in enumerate(jobs) if job.key is not None]
    found: set[int] = set()
    if keyed:
        tenants = [numbers.tenants[jobs[index].tenant] for index in keyed]
        rows = await connection.fetch(_KEYS, keyed, tenants, [jobs[index].key for index in keyed])
        found = {int(row["place"]) for row in rows}
    rows = await connection.fetch(_EXISTING, [job.id for job in jobs])
    there = {str(row["id"]) for row in rows if row["state"] is not None}
    return found | {index for index, job in enumerate(jobs) if job.id in there}


async def _claim(connection: Connection, job: NewJob, key: UniqueKey) -> KeyHolder | None:
    """Free the key for the job; if it stays taken, return its holder. The caller has locked the key's row."""
    while True:
        (row,) = await connection.fetch(_HOLDER, storable(key.name))
        holder = None
        if row["state"] is not None:
            holder = KeyHolder(str(row["id"]), STATES[row["state"]], row["version"], row["has_run"], row["until"])
        found = availability(key, holder, now=row["now"])
        if found == "taken":
            return holder
        if found == "free" or holder is None:
            return None
        # If it was dispatched just now, the loop checks again.
        if await change_in(connection, replacement(holder, by=job.id)) is not None:
            return None


async def _insert(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, *, may_exist: bool
) -> dict[str, int]:
    """Insert the jobs; return the ids and states of the new ones."""
    if not jobs:
        return {}
    statement, values = insertion(jobs, numbers, may_exist=may_exist)
    return {str(row[0]): row[1] for row in await connection.fetch(statement, *values)}


def insertion(
    jobs: Sequence[NewJob], numbers: Numbers, *, may_exist: bool, hold: PartitionHold | None = None
) -> tuple[str, list[object]]:
    """Return the statement of `SUBMIT` that inserts these jobs, and its values.

    Args:
        hold: of the partition that dispatches the only job, a new one of a run, at once: see `SUBMIT_AT_ONCE`.
    """
    has_keys = any(job.key is not None for job in jobs)
    if has_keys:
        # In one fixed order, so that two calls with overlapping keys cannot deadlock.
        jobs = sorted(jobs, key=lambda job: (numbers.tenants[job.tenant], job.key or ""))
    values: list[tuple[object, ...]] = [
        (
            job.id,
            job.due,
            job.expires,
            numbers.tenants[job.tenant],
            numbers.queues[job.queue],
            numbers.tasks[job.task],
            job.priority,
            job.held,
            job.key,
            job.fingerprint if has_keys else None,
            job.body if len(job.body) <= LONGEST_BODY else None,
        )
        for job in jobs
    ]
    has_rest = any(job.detail is not None or len(job.body) > LONGEST_BODY for job in jobs)
    if has_rest:
        # If two jobs have the same id, the first one is inserted.
        firsts = {job.id: index for index, job in reversed(list(enumerate(jobs)))}
        values = [
            (*row, *(_rest_of(job) if firsts[job.id] == index else (None, None)))
            for index, (row, job) in enumerate(zip(values, jobs, strict=True))
        ]
    has_steps = any(job.step is not None for job in jobs)
    if has_steps:
        values = [(*row, *(job.step or _NO_STEP)) for row, job in zip(values, jobs, strict=True)]
    is_one = len(values) == 1
    columns = values[0] if is_one else _columns_of(values)
    if hold is not None:
        lease = (partition_key(hold.partition), hold.epoch, hold.partition)
        return SUBMIT_AT_ONCE[has_rest], [*columns, *chances(1), *lease]
    return SUBMIT[may_exist, is_one, has_keys, has_rest, has_steps], list(columns)


def _columns_of(rows: Sequence[tuple[object, ...]]) -> list[Sequence[object] | None]:
    return [
        shared_column(values) if place in SHARED else column_of(values)
        for place, values in enumerate(zip(*rows, strict=True))
    ]


def _rest_of(job: NewJob) -> tuple[str | None, bytes | None]:
    """Return what is stored outside the job's row: its detail, and a large body."""
    return (
        None if job.detail is None else encode_detail(job.detail),
        job.body if len(job.body) > LONGEST_BODY else None,
    )


async def _answer(
    connection: Connection,
    jobs: Sequence[NewJob],
    numbers: Numbers,
    answers: list[Submitted | None],
    indexes: Sequence[int],
) -> None:
    """Fill in the answers of jobs at these indexes that existed before; erased ones have the state unknown."""
    keyed = [index for index in indexes if jobs[index].key is not None]
    found: dict[int, tuple[str, bool]] = {index: (jobs[index].id, True) for index in indexes}
    rows: Sequence[Any] = ()
    if keyed:
        tenants = [numbers.tenants[jobs[index].tenant] for index in keyed]
        rows = await connection.fetch(_KEYS, keyed, tenants, [jobs[index].key for index in keyed])
    for row in rows:
        found[row["place"]] = (str(row["id"]), bool(row["fingerprint"] == jobs[int(row["place"])].fingerprint))
    existing = {
        str(row["id"]): row
        for row in await connection.fetch(_EXISTING, sorted({job_id for job_id, _ in found.values()}))
    }
    left_behind = [row for row in rows if existing[str(row["id"])]["state"] is None]
    if left_behind:
        keys = [jobs[int(row["place"])] for row in left_behind]
        await connection.execute(
            _FREE_KEYS,
            [numbers.tenants[job.tenant] for job in keys],
            [job.key for job in keys],
            [row["id"] for row in left_behind],
        )
    for index, (job_id, is_same) in found.items():
        row = existing[job_id]
        state = JobState.UNKNOWN if row["state"] is None else STATES[row["state"]]
        answers[index] = Submitted(job_id, False, is_same, state, row["version"] or 0)
