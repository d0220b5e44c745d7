"""Submitting: one statement for all jobs of a call, and answers for those that were there before."""

from collections.abc import Sequence
from typing import Any, Final

from taskmq.contracts.jobs import NewJob, Submitted
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import encode_detail
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.names import Names
from taskmq_sql.postgres.statements import SUBMIT, SUBMIT_KEYED

__all__ = ["Numbers", "insert_jobs", "numbers_of", "submit"]

_BODIES: Final = "insert into taskmq.job_body (id, body) select * from unnest($1::uuid[], $2::bytea[])"
_DETAILS: Final = "insert into taskmq.job_detail (id, detail) select * from unnest($1::uuid[], $2::text[])"
_EXISTING: Final = """
select i.id, coalesce(j.state, h.state) as state, coalesce(j.version, h.version) as version
from unnest($1::uuid[]) as i(id)
left join lateral (select id, state, version from taskmq.job where id = i.id offset 0) j on true
left join lateral (select state, version from taskmq.job_history where id = i.id order by ended desc limit 1) h
on j.id is null"""
_KEYS: Final = """
select i.place, k.id, k.fingerprint from unnest($1::int[], $2::int[], $3::text[]) as i(place, tenant, key)
cross join lateral (select id, fingerprint from taskmq.job_key where tenant = i.tenant and key = i.key offset 0) k"""


class Numbers:
    """The names of the jobs as the tables have them."""

    def __init__(self, tenants: dict[str, int], queues: dict[str, int], tasks: dict[str, int]) -> None:
        self.tenants = tenants
        self.queues = queues
        self.tasks = tasks


async def submit(database: Database, jobs: Sequence[NewJob], connection: Connection | None) -> list[Submitted]:
    """What `JobStore.submit` does; in the caller's transaction where there is a connection."""
    numbers = await numbers_of(database.names, jobs)

    async def work(connection: Connection) -> list[Submitted]:
        return await insert_jobs(connection, jobs, numbers)

    if connection is not None:
        return await work(connection)
    is_one_statement = all(len(job.body) <= LONGEST_BODY and job.detail is None for job in jobs)
    return await database.submits.run("statement" if is_one_statement else "transaction", work)


async def numbers_of(names: Names, jobs: Sequence[NewJob]) -> Numbers:
    """The names of the jobs, which get numbers where they have none; outside of the transaction that inserts them."""
    return Numbers(
        await names.ids("tenant", (job.tenant for job in jobs)),
        await names.ids("queue", (job.queue for job in jobs)),
        await names.ids("task", (job.task for job in jobs)),
    )


async def insert_jobs(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> list[Submitted]:
    """Submit in the transaction that is open on the connection."""
    new = await _insert(connection, jobs, numbers)
    answers: list[Submitted | None] = []
    for job in jobs:
        state = new.pop(job.id, None)
        answers.append(None if state is None else Submitted(job.id, True, True, STATES[state], 1))
    others = [place for place, answer in enumerate(answers) if answer is None]
    if others:
        await _answer(connection, jobs, numbers, answers, others)
    made = {answer.id for answer in answers if answer is not None and answer.is_new}
    await _insert_rest(connection, [job for job in jobs if job.id in made])
    return [answer for answer in answers if answer is not None]


async def _insert(connection: Connection, jobs: Sequence[NewJob], numbers: Numbers) -> dict[str, int]:
    """The ids and states of the jobs that are new."""
    statement = SUBMIT
    if any(job.key is not None for job in jobs):
        # In one order everywhere: two calls whose keys cross wait for each other once, and not in a circle.
        jobs = sorted(jobs, key=lambda job: (numbers.tenants[job.tenant], job.key or ""))
        statement = SUBMIT_KEYED
    rows = await connection.fetch(
        statement,
        [job.id for job in jobs],
        [job.due for job in jobs],
        [job.expires for job in jobs],
        [numbers.tenants[job.tenant] for job in jobs],
        [numbers.queues[job.queue] for job in jobs],
        [numbers.tasks[job.task] for job in jobs],
        [job.priority for job in jobs],
        [job.held for job in jobs],
        [job.key for job in jobs],
        [job.fingerprint for job in jobs],
        [job.body if len(job.body) <= LONGEST_BODY else None for job in jobs],
    )
    return {str(row[0]): row[1] for row in rows}


async def _insert_rest(connection: Connection, jobs: Sequence[NewJob]) -> None:
    """What does not stand in the rows of new jobs."""
    once = {job.id: job for job in reversed(jobs)}.values()
    if large := [job for job in once if len(job.body) > LONGEST_BODY]:
        await connection.execute(_BODIES, [job.id for job in large], [job.body for job in large])
    details = [(job.id, encode_detail(job.detail)) for job in once if job.detail is not None]
    if details:
        await connection.execute(_DETAILS, [each[0] for each in details], [each[1] for each in details])


async def _answer(
    connection: Connection,
    jobs: Sequence[NewJob],
    numbers: Numbers,
    answers: list[Submitted | None],
    places: Sequence[int],
) -> None:
    """Say of the jobs at these places what became of those that were there before."""
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
    for place, (job_id, is_same) in found.items():
        row = existing[job_id]
        answers[place] = Submitted(job_id, False, is_same, STATES[row["state"]], row["version"])
