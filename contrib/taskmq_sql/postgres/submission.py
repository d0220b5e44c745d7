"""Submitting: one statement for all jobs of a call, and answers for those that were there before.

Jobs with unique keys cost some more: their keys are locked, in one order everywhere, before anything is looked up. So
do jobs that wait for others: they are made held, and in the same transaction it is written what they wait for.

Each statement sees what was committed when it began. So a job that was in the way of an insert may have been erased
when it is looked up for the answer: what was submitted is inserted again then, where its quotas have room.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import structs

from taskmq.contracts.jobs import DependencyRefusal, NewJob, Submitted, over_quota, renamed, replacement
from taskmq.model.jobs.dependencies import JobDependency, generations
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey, availability
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import encode_detail
from taskmq_sql.postgres.changes import change_in
from taskmq_sql.postgres.connections import Connection, column_of
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import Unmet, find_upstream, wait
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.quotas import Admission, admit_jobs, concern, lock_usage
from taskmq_sql.postgres.statements import SUBMIT

__all__ = ["Numbers", "insert_jobs", "insert_within", "numbers_of", "submit"]

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

_Insert = Callable[[Connection, Sequence[NewJob], "Numbers"], Awaitable[list[Submitted]]]


class Numbers:
    """The names of the jobs as the tables have them."""

    def __init__(self, tenants: dict[str, int], queues: dict[str, int], tasks: dict[str, int]) -> None:
        self.tenants = tenants
        self.queues = queues
        self.tasks = tasks


async def submit(
    database: Database, jobs: Sequence[NewJob], connection: Connection | None, *, quotas: Quotas
) -> list[Submitted]:
    """What `JobStore.submit` does; in the caller's transaction where there is a connection."""
    numbers = await numbers_of(database.names, jobs)

    async def work(connection: Connection) -> list[Submitted]:
        return await insert_within(connection, jobs, numbers, quotas)

    if connection is not None:
        return await work(connection)
    is_one_statement = not concern(quotas, jobs) and all(job.unique is None and not _depends_on(job) for job in jobs)
    return await database.submits.run("statement" if is_one_statement else "transaction", work)


async def insert_within(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, quotas: Quotas
) -> list[Submitted]:
    """Submit those of the jobs that are within their quotas, in the connection's transaction."""
    if concern(quotas, jobs):
        return await _insert_where_room(connection, jobs, numbers, quotas)
    return await insert_jobs(connection, jobs, numbers)


async def numbers_of(names: Names, jobs: Sequence[NewJob]) -> Numbers:
    """The names of the jobs, which get numbers where they have none; outside of the transaction that inserts them."""
    return Numbers(
        await names.ids("tenant", (job.tenant for job in jobs)),
        await names.ids("queue", (job.queue for job in jobs)),
        await names.ids("task", (job.task for job in jobs)),
    )


async def _insert_where_room(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, quotas: Quotas
) -> list[Submitted]:
    """Submit those of the jobs that are within their quotas."""
    usage = await lock_usage(connection, quotas, jobs)
    # Looked up behind the lock: who submits the same at the same time has done it, or waits.
    known = await _known(connection, jobs, numbers)
    places = [place for place in _in_turns(jobs) if place not in known]
    admission = await admit_jobs(connection, quotas, jobs, places, tenants=numbers.tenants, usage=usage)
    over = admission.over
    rest = [place for place in range(len(jobs)) if place not in over]
    made = await insert_jobs(connection, [jobs[place] for place in rest], numbers, admission) if rest else []
    answers = dict(zip(rest, made, strict=True))
    await admission.write(connection, {answer.id for answer in made if answer.is_new})
    return [over_quota(job, over[place]) if place in over else answers[place] for place, job in enumerate(jobs)]


def _in_turns(jobs: Sequence[NewJob]) -> list[int]:
    """The places of the jobs, each behind those that it waits for, but of those that wait for themselves."""
    groups, _ = generations(_upstream(jobs))
    turns = {job_id: turn for turn, group in enumerate(groups) for job_id in group}
    return sorted(
        (place for place, job in enumerate(jobs) if job.id in turns), key=lambda place: (turns[jobs[place].id], place)
    )


def _upstream(jobs: Sequence[NewJob]) -> dict[str, list[str]]:
    return {job.id: [each.id for each in _depends_on(job)] for job in reversed(jobs)}


async def insert_jobs(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None = None
) -> list[Submitted]:
    """Submit in the transaction that is open on the connection.

    Args:
        admission: counts also those that were there when it was made, and are erased.
    """
    if any(job.detail is not None and job.detail.depends_on for job in jobs):
        return await _insert_in_turns(connection, jobs, numbers, admission)
    return await _insert_by(_insert_jobs, connection, jobs, numbers, admission)


async def _insert_by(
    insert: _Insert, connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None
) -> list[Submitted]:
    """Submit, and once more those jobs that were erased in between."""
    answers = await insert(connection, jobs, numbers)
    while True:
        if admission is not None:
            _count_in(jobs, answers, admission)
        if not (erased := [place for place, answer in enumerate(answers) if _is_erased(answer)]):
            return answers
        again = await insert(connection, [jobs[place] for place in erased], numbers)
        for place, answer in zip(erased, again, strict=True):
            answers[place] = answer


def _count_in(jobs: Sequence[NewJob], answers: list[Submitted], admission: Admission) -> None:
    """Count those that were made; those that are to be made once more are refused where there is no room for them."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.is_new:
            admission.count(job)
    for place, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        if _is_erased(answer) and (excess := admission.admit(job)) is not None:
            answers[place] = over_quota(job, excess)


def _is_erased(answer: Submitted) -> bool:
    return answer.state is JobState.UNKNOWN and answer.refusal is None


async def _insert_in_turns(
    connection: Connection, jobs: Sequence[NewJob], numbers: Numbers, admission: Admission | None
) -> list[Submitted]:
    """Submit jobs of which some wait for others, each behind those of the same call that it waits for."""
    places: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        places.setdefault(job.id, []).append(place)
    upstream = _upstream(jobs)
    groups, circular = generations(upstream)
    answers: dict[int, Submitted] = {}
    for job_id in circular:
        refusal = DependencyRefusal(next(each for each in upstream[job_id] if each in circular), "cycle")
        answers |= {place: _refused(jobs[place], refusal) for place in places[job_id]}
    # What was submitted before under another id is waited for by that one.
    known: dict[str, str] = {}
    for group in groups:
        turn = sorted(place for job_id in group for place in places[job_id])
        for place, answer in zip(
            turn,
            await _insert_by(
                _insert_waiting, connection, [renamed(jobs[place], known) for place in turn], numbers, admission
            ),
            strict=True,
        ):
            answers[place] = answer
            if answer.is_same:
                known[jobs[place].id] = answer.id
    return [answers[place] for place in range(len(jobs))]


async def _insert_waiting(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs of which none waits for another one of them."""
    # Submitted once more: whatever has become of those that it was to wait for.
    known = await _known(connection, jobs, numbers)
    others = [each.id for place, job in enumerate(jobs) if place not in known for each in _depends_on(job)]
    found = await find_upstream(connection, others)
    answers: dict[int, Submitted] = {}
    unmet: dict[str, Unmet] = {}
    kept: list[int] = []
    for place, job in enumerate(jobs):
        if place not in known and (refusal := found.refusal(_depends_on(job), numbers.tenants[job.tenant])):
            answers[place] = _refused(job, refusal)
            continue
        if place not in known and (left := found.unmet(_depends_on(job))):
            unmet[job.id] = left
        kept.append(place)
    made = [structs.replace(jobs[place], held=True) if jobs[place].id in unmet else jobs[place] for place in kept]
    for place, answer in zip(kept, await _insert_jobs(connection, made, numbers), strict=True):
        is_waiting = answer.is_new and jobs[place].id in unmet and not jobs[place].held
        answers[place] = structs.replace(answer, state=JobState.WAITING) if is_waiting else answer
    new = {jobs[place].id: jobs[place] for place in kept if answers[place].is_new}
    waiting = [(job, unmet[job_id]) for job_id, job in new.items() if job_id in unmet]
    if any(job.unique is not None for job, _ in waiting):
        # The one that had the key may be one that they wait for, and has ended now.
        found = await find_upstream(connection, others)
        waiting = [(job, found.again(left)) for job, left in waiting]
    await wait(connection, waiting)
    return [answers[place] for place in range(len(jobs))]


def _depends_on(job: NewJob) -> Sequence[JobDependency]:
    return () if job.detail is None else job.detail.depends_on


def _refused(job: NewJob, refusal: DependencyRefusal) -> Submitted:
    return Submitted(job.id, False, False, JobState.UNKNOWN, 0, refusal=refusal)


async def _insert_jobs(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs that wait for no others."""
    if all(job.unique is None for job in jobs):
        return await _submit(connection, jobs, numbers)
    keys = {storable(job.unique.name) for job in jobs if job.unique is not None}
    await connection.execute(_LOCK_KEYS, sorted(keys))
    return [each for some in _by_turns(jobs) for each in await _submit_unique(connection, some, numbers)]


async def _submit(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit jobs whose unique keys, where they have any, are free."""
    new = await _insert(connection, jobs, numbers)
    answers: list[Submitted | None] = []
    for job in jobs:
        state = new.pop(job.id, None)
        answers.append(None if state is None else Submitted(job.id, True, True, STATES[state], 1))
    others = [place for place, answer in enumerate(answers) if answer is None]
    if others:
        await _answer(connection, jobs, numbers, answers, others)
    return [answer for answer in answers if answer is not None]


def _by_turns(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """The jobs in their order, in turns of which each has a unique key once."""
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
    """Submit jobs of which some are to be the only ones of their keys, and no two of one key."""
    # Submitted once more: these have their keys, or are not asked for them any more.
    known = await _known(connection, jobs, numbers)
    taken: dict[int, Submitted] = {}
    for place, job in enumerate(jobs):
        if job.unique is None or place in known:
            continue
        if (holder := await _claim(connection, job, job.unique)) is not None:
            taken[place] = Submitted(holder.id, False, False, holder.state, holder.version, is_duplicate=True)
    rest = iter(await _submit(connection, [job for place, job in enumerate(jobs) if place not in taken], numbers))
    answers = [taken[place] if place in taken else next(rest) for place in range(len(jobs))]
    new = [job for job, answer in zip(jobs, answers, strict=True) if answer.is_new and job.unique is not None]
    await connection.execute(
        _TAKE_KEYS,
        [storable(job.unique.name) for job in new if job.unique is not None],
        [job.id for job in new],
        [job.unique.ttl for job in new if job.unique is not None],
    )
    return answers


async def _known(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> set[int]:
    """The places of those jobs whose ids, or whose submitters' ids, are there."""
    keyed = [place for place, job in enumerate(jobs) if job.key is not None]
    found: set[int] = set()
    if keyed:
        tenants = [numbers.tenants[jobs[place].tenant] for place in keyed]
        rows = await connection.fetch(_KEYS, keyed, tenants, [jobs[place].key for place in keyed])
        found = {int(row["place"]) for row in rows}
    rows = await connection.fetch(_EXISTING, [job.id for job in jobs])
    there = {str(row["id"]) for row in rows if row["state"] is not None}
    return found | {place for place, job in enumerate(jobs) if job.id in there}


async def _claim(connection: Connection, job: NewJob, key: UniqueKey) -> KeyHolder | None:
    """Free the key for the job; its holder, where the key stays taken. The caller has locked the key's row."""
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
        # It may have been dispatched in the moment, and is looked at once more then.
        if await change_in(connection, replacement(holder, by=job.id)) is not None:
            return None


async def _insert(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> dict[str, int]:
    """The ids and states of the jobs that are new."""
    if not jobs:
        return {}
    has_keys = any(job.key is not None for job in jobs)
    if has_keys:
        # In one order everywhere: two calls whose keys cross wait for each other once, and not in a circle.
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
            job.fingerprint,
            job.body if len(job.body) <= LONGEST_BODY else None,
        )
        for job in jobs
    ]
    has_rest = any(job.detail is not None or len(job.body) > LONGEST_BODY for job in jobs)
    if has_rest:
        # Of two with one id the first is made.
        firsts = {job.id: place for place, job in reversed(list(enumerate(jobs)))}
        values = [
            (*row, *(_rest_of(job) if firsts[job.id] == place else (None, None)))
            for place, (row, job) in enumerate(zip(values, jobs, strict=True))
        ]
    is_one = len(values) == 1
    rows = await connection.fetch(
        SUBMIT[is_one, has_keys, has_rest], *(values[0] if is_one else map(column_of, zip(*values, strict=True)))
    )
    return {str(row[0]): row[1] for row in rows}


def _rest_of(job: NewJob) -> tuple[str | None, bytes | None]:
    """What does not stand in the row of a job: its detail, and its body where that is large."""
    return (
        None if job.detail is None else encode_detail(job.detail),
        job.body if len(job.body) > LONGEST_BODY else None,
    )


async def _answer(
    connection: Connection,
    jobs: Sequence[NewJob],
    numbers: Numbers,
    answers: list[Submitted | None],
    places: Sequence[int],
) -> None:
    """Say of the jobs at these places what became of those that were there before: unknown where they are erased."""
    keyed = [place for place in places if jobs[place].key is not None]
    found: dict[int, tuple[str, bool]] = {place: (jobs[place].id, True) for place in places}
    rows: Sequence[Any] = ()
    if keyed:
        tenants = [numbers.tenants[jobs[place].tenant] for place in keyed]
        rows = await connection.fetch(_KEYS, keyed, tenants, [jobs[place].key for place in keyed])
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
    for place, (job_id, is_same) in found.items():
        row = existing[job_id]
        state = JobState.UNKNOWN if row["state"] is None else STATES[row["state"]]
        answers[place] = Submitted(job_id, False, is_same, state, row["version"] or 0)
