"""Quotas in PostgreSQL: their settings, recent usage, and admission of jobs."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import NewJob, Pick, counted_facts, partition_key
from taskmq.model.jobs.quotas import (
    CountedJob,
    QuotaBook,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    RunBook,
    looked_at,
    queued_limits,
    run_name,
    usage_names,
)
from taskmq.model.nodes import Placement, together
from taskmq_sql.jobs.values import chances, owner_in
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.statements.dispatch import FIRST, PLACE, WAITING

_LOCK: Final = """
insert into taskmq.quota_usage (name, day, jobs, bytes, used_until) select name, 0, 0, 0, 0
from unnest($1::text[]) as i(name)
on conflict (name) do update set day = quota_usage.day returning name, day, jobs, bytes, used_until"""
_WRITE: Final = """
update taskmq.quota_usage u set day = i.day, jobs = i.jobs, bytes = i.bytes, used_until = i.used_until
from unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[], $5::float8[]) as i(name, day, jobs, bytes, used_until)
where u.name = any($1) and u.name = i.name"""
# One index probe per queue and priority, however many jobs others have.
_QUEUED: Final = """
select i.name, (select count(*) from (
    select from taskmq.queue q cross join generate_series(0, 9) p cross join lateral
        (select from taskmq.ready r where r.queue = q.id and r.priority = p and r.tenant = i.tenant limit i.most) r
    union all select from taskmq.gated g where g.tenant = i.tenant
    limit i.most) w) as waiting
from unnest($1::text[], $2::int[], $3::bigint[]) as i(name, tenant, most)"""
# Reads as many batches as are under way. Jobs that left their batch have another token or state.
_UNDER_WAY: Final = """
select distinct on (j.id) j.tenant, j.id, (select detail from taskmq.job_detail t where t.id = j.id) as detail
from taskmq.dispatch_batch b cross join lateral unnest(b.ids, b.tokens) as i(id, token) cross join lateral
  (select id, tenant from taskmq.job where id = i.id and token = i.token and state in (2, 3) offset 0) j
where j.tenant = any($1::int[])"""
_DETAILS: Final = "select id, detail from taskmq.job_detail where id = any($1::uuid[])"


async def dispatch_within(
    connection: Connection,
    quotas: Quotas,
    picks: Sequence[Pick],
    lanes: Sequence[tuple[int, int, int]],
    *,
    partition: int,
    epoch: int,
    over: str,
) -> Sequence[Row]:
    """Dispatch the first jobs of lanes as far as their quotas allow, in a transaction.

    Args:
        lanes: of the picks, as numbers: queue, priority and tenant.
    """
    tenants = {pick.lane.tenant: lane[2] for pick, lane in zip(picks, lanes, strict=True)}
    names = {number: tenant for tenant, number in tenants.items()}
    running = await _running(connection, tenants)
    depths = looked_at(quotas, [(pick.lane.tenant, pick.count) for pick in picks])
    waiting = await connection.fetch(
        WAITING,
        *([lane[column] for lane in lanes] for column in range(3)),
        depths,
        *([part] * len(lanes) for part in FIRST),
    )
    found = [(row, names[row["tenant"]], owner_in(row["detail"])) for row in waiting]
    now = int(await connection.fetchval("select taskmq.now_ms()"))
    book = await _book(connection, quotas, running, {(tenant, owner) for _, tenant, owner in found}, now=now)
    left = {index: pick.count for index, pick in enumerate(picks, 1)}
    chosen: list[Any] = []
    for row, tenant, owner in found:
        is_over = row["expires"] is not None and row["expires"] <= now
        if left[row["place"]] and (is_over or book.admit(tenant=tenant, user=owner)):
            left[row["place"]] -= 1
            chosen.append(row["id"])
    if not chosen:
        return ()
    await _write(connection, book.changed)
    return await connection.fetch(
        PLACE, chosen, partition_key(partition), epoch, partition, over, chances(len(chosen))
    )


async def admit_placements(
    connection: Connection, quotas: Quotas, placements: Mapping[str, Placement], tenants: Mapping[str, int]
) -> dict[str, Placement]:
    """Count the placements that their quotas allow and return them, in a transaction.

    Args:
        tenants: tenants with quotas that can delay jobs, with their numbers.
    """
    owners = dict.fromkeys(placements, "")
    for row in await connection.fetch(_DETAILS, [job for job, each in placements.items() if each.tenant in tenants]):
        owners[str(row["id"])] = owner_in(row["detail"])
    running = await _running(connection, tenants)
    now = int(await connection.fetchval("select taskmq.now_ms()"))
    limited = {(each.tenant, owners[job]) for job, each in placements.items() if each.tenant in tenants}
    book = await _book(connection, quotas, running, limited, now=now)
    admitted: set[str] = set()
    for unit in together(placements):
        if book.admit_all((placements[job].tenant, owners[job]) for job in unit):
            admitted.update(unit)
    await _write(connection, book.changed)
    return {job: each for job, each in placements.items() if job in admitted}


async def _running(connection: Connection, tenants: Mapping[str, int]) -> Counter[tuple[str, str]]:
    """Lock the run usage of these tenants, and count their jobs under way.

    A concurrent dispatch for one of them waits here and then counts this one's jobs.
    """
    await connection.fetch(_LOCK, sorted(map(run_name, tenants)))
    return await count_in_flight(connection, tenants)


async def count_in_flight(connection: Connection, tenants: Mapping[str, int]) -> Counter[tuple[str, str]]:
    """Count the jobs of these tenants that are under way, by tenant and owner.

    Args:
        tenants: numbers of the tenants.
    """
    names = {number: tenant for tenant, number in tenants.items()}
    found = {
        str(row["id"]): (names[row["tenant"]], owner_in(row["detail"]))
        for row in await connection.fetch(_UNDER_WAY, sorted(names))
    }
    return Counter(found.values())


async def _book(
    connection: Connection,
    quotas: Quotas,
    running: Mapping[tuple[str, str], int],
    owners: Iterable[tuple[str, str]],
    *,
    now: int,
) -> RunBook:
    wanted = {
        run_name(tenant, quota.user) for tenant, user in owners for quota in quotas.of(tenant, user) if quota.rate
    }
    rows = await connection.fetch(_LOCK, sorted(wanted))
    usage = {row["name"]: QuotaUsage(*tuple(row)[1:]) for row in rows}
    return RunBook(quotas, usage=usage, running=running, now=now)


def has_quota(quotas: Quotas, jobs: Sequence[NewJob]) -> bool:
    """Whether a quota applies to one of the jobs."""
    return bool(quotas.quotas) and any(quotas.of(job.tenant, _owner(job)) for job in jobs)


async def lock_usage(connection: Connection, quotas: Quotas, jobs: Sequence[NewJob]) -> dict[str, QuotaUsage]:
    """Lock and return the recent usage under the quotas of the jobs.

    Concurrent submissions for the same tenant or owner wait here until the open transaction ends.
    """
    # In one fixed order, so that two submissions with overlapping owners cannot deadlock.
    rows = await connection.fetch(_LOCK, usage_names(quotas, ((job.tenant, _owner(job)) for job in jobs)))
    return {row["name"]: QuotaUsage(*tuple(row)[1:]) for row in rows}


class Admission:
    """Admission of the jobs of one submission.

    Attributes:
        over: the exceeded quotas of jobs that were not admitted, by index.
    """

    def __init__(self, book: QuotaBook, now: int) -> None:
        self.over: dict[int, QuotaExcess] = {}
        self._book = book
        self._now = now
        self._counted: dict[str, CountedJob] = {}

    def admit(self, job: NewJob) -> QuotaExcess | None:
        """Count the job once; if a quota is exhausted, return the excess instead."""
        if job.id in self._counted:
            return None
        seen = counted_facts(job, now=self._now)
        if (excess := self._book.admit(**seen)) is None:
            self._counted[job.id] = seen
        return excess

    def count(self, job: NewJob) -> None:
        """Count an inserted job once; it existed at admission and was erased before the insert."""
        if job.id not in self._counted:
            seen = self._counted[job.id] = counted_facts(job, now=self._now)
            self._book.count(**seen)

    async def write(self, connection: Connection, made: Container[str]) -> None:
        """Write the usage of the jobs that were inserted, given by id."""
        for job_id, seen in self._counted.items():
            if job_id not in made:
                self._book.take_back(**seen)
        await _write(connection, self._book.changed)


async def admit_jobs(
    connection: Connection,
    quotas: Quotas,
    jobs: Sequence[NewJob],
    indexes: Iterable[int],
    *,
    tenants: dict[str, int],
    usage: dict[str, QuotaUsage],
) -> Admission:
    """Admit the jobs at these indexes, one after the other; `write` saves the usage once the inserts are known.

    Args:
        usage: returned by `lock_usage` in the same transaction.
    """
    now = int(await connection.fetchval("select taskmq.now_ms()"))
    book = QuotaBook(
        quotas,
        usage=usage,
        queued=await count_queued(connection, queued_limits(quotas, [job.tenant for job in jobs]), tenants),
        now=now,
    )
    admission = Admission(book, now)
    seen: set[object] = set()
    for index in indexes:
        job = jobs[index]
        names_of = {job.id} if job.key is None else {job.id, (job.tenant, job.key)}
        if seen & names_of:
            continue
        if (excess := admission.admit(job)) is not None:
            admission.over[index] = excess
        else:
            seen |= names_of
    return admission


async def _write(connection: Connection, usage: Mapping[str, QuotaUsage]) -> None:
    changed = list(usage.values())
    await connection.execute(
        _WRITE,
        list(usage),
        [each.day for each in changed],
        [each.jobs for each in changed],
        [each.bytes for each in changed],
        [each.used_until for each in changed],
    )


async def count_queued(
    connection: Connection, limits: Mapping[str, int], tenants: Mapping[str, int]
) -> dict[str, int]:
    """Count the waiting jobs of tenants, each up to its limit.

    Args:
        tenants: numbers of the tenants.
    """
    if not limits:
        return {}
    numbers = [tenants[tenant] for tenant in limits]
    rows = await connection.fetch(_QUEUED, list(limits), numbers, list(limits.values()))
    return {row["name"]: row["waiting"] for row in rows}


def _owner(job: NewJob) -> str:
    return "" if job.detail is None else job.detail.owner
