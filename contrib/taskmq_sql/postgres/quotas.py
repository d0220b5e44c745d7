"""What operators have said about quotas, what was submitted under them, and whether there is room for more."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import NewJob
from taskmq.model.jobs.quotas import (
    KEPT_DAYS,
    QuotaBook,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    limited_tenants,
    read_quotas,
    usage_name,
)
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database

__all__ = ["DROP_USAGE", "KnownQuotas", "admit_jobs", "concern", "lock_usage"]

_READ: Final = "select value from taskmq.setting where name = 'quotas'"
_FIRST: Final = """
insert into taskmq.setting (name, value) values ('quotas', $1) on conflict do nothing returning name"""
_CHANGE: Final = """
update taskmq.setting set value = $1
where name = 'quotas' and (value::json ->> 'version')::int = $2 returning name"""
_USAGE: Final = "select name, day, jobs, bytes, used_until from taskmq.quota_usage where name = any($1::text[])"
_LOCK: Final = """
insert into taskmq.quota_usage (name, day, jobs, bytes, used_until) select name, 0, 0, 0, 0
from unnest($1::text[]) as i(name)
on conflict (name) do update set day = quota_usage.day returning name, day, jobs, bytes, used_until"""
_WRITE: Final = """
update taskmq.quota_usage u set day = i.day, jobs = i.jobs, bytes = i.bytes, used_until = i.used_until
from unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[], $5::float8[]) as i(name, day, jobs, bytes, used_until)
where u.name = any($1) and u.name = i.name"""
# Those that a submission has locked are in use. A rate may be used up for longer than a day.
DROP_USAGE: Final = f"""
delete from taskmq.quota_usage where name in (
    select name from taskmq.quota_usage
    where day < taskmq.now_ms() / {DAY} - {KEPT_DAYS} and used_until < taskmq.now_ms() for update skip locked)"""
# One probe of the key's index for each queue and priority, however many jobs others have.
_QUEUED: Final = """
select i.name, (select count(*) from (
    select from taskmq.queue q cross join generate_series(0, 9) p cross join lateral
        (select from taskmq.ready r where r.queue = q.id and r.priority = p and r.tenant = i.tenant limit i.most) r
    limit i.most) w) as waiting
from unnest($1::text[], $2::int[], $3::bigint[]) as i(name, tenant, most)"""
# So long a change may go unseen by a process; where nobody has quotas, that look is all they cost.
_FRESH: Final = 1.0


class KnownQuotas:
    """The quotas of a database, as one process knows them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = Quotas()
        self._until = float("-inf")

    async def current(self) -> Quotas:
        """What was said, as of a second ago at most."""
        if time.monotonic() >= self._until:
            await self.read()
        return self._known

    async def read(self) -> Quotas:
        """What was said last."""
        content = await self._database.lookups.run("read", lambda connection: connection.fetchval(_READ))
        self._known, self._until = read_quotas(content), time.monotonic() + _FRESH
        return self._known

    async def say(self, quotas: Quotas) -> bool:
        """Say it; whether what was said before is one version older."""
        content = msgspec.json.encode(quotas).decode()
        statement, before = (_FIRST, ()) if quotas.version == 1 else (_CHANGE, (quotas.version - 1,))
        rows = await self._database.changes.run(
            "statement", lambda connection: connection.fetch(statement, content, *before)
        )
        self._until = float("-inf")
        return bool(rows)

    async def usage(self, names: Sequence[str]) -> dict[str, QuotaUsage]:
        """What was submitted of late under these names."""
        rows = await self._database.reads.run("read", lambda connection: connection.fetch(_USAGE, list(names)))
        return {row["name"]: QuotaUsage(*tuple(row)[1:]) for row in rows}


def concern(quotas: Quotas, jobs: Sequence[NewJob]) -> bool:
    """Whether one of the jobs has a quota."""
    return bool(quotas.quotas) and any(quotas.of(job.tenant, _owner(job)) for job in jobs)


async def lock_usage(connection: Connection, quotas: Quotas, jobs: Sequence[NewJob]) -> dict[str, QuotaUsage]:
    """What was submitted of late under the quotas of the jobs.

    Who submits for the same tenant or owner waits here until the transaction that is open has ended.
    """
    owners = {(job.tenant, _owner(job)) for job in jobs}
    names = {usage_name(each.tenant, each.user) for tenant, owner in owners for each in quotas.of(tenant, owner)}
    # In one order everywhere: two submissions whose owners cross wait for each other once, and not in a circle.
    rows = await connection.fetch(_LOCK, sorted(names))
    return {row["name"]: QuotaUsage(*tuple(row)[1:]) for row in rows}


async def admit_jobs(
    connection: Connection,
    quotas: Quotas,
    jobs: Sequence[NewJob],
    places: Iterable[int],
    *,
    tenants: dict[str, int],
    usage: dict[str, QuotaUsage],
) -> dict[int, QuotaExcess]:
    """Count the jobs at these places in, one after the other; what those beyond their quotas exceed, by their places.

    Args:
        usage: that of `lock_usage`, in the same transaction.
    """
    now = int(await connection.fetchval("select taskmq.now_ms()"))
    book = QuotaBook(
        quotas,
        usage=usage,
        queued=await _queued(connection, quotas, sorted({job.tenant for job in jobs}), tenants),
        now=now,
    )
    found: dict[int, QuotaExcess] = {}
    seen: set[object] = set()
    for place in places:
        job = jobs[place]
        names_of = {job.id} if job.key is None else {job.id, (job.tenant, job.key)}
        if seen & names_of:
            continue
        is_queued = not job.held and job.due <= now
        excess = book.admit(tenant=job.tenant, user=_owner(job), size=len(job.body), is_queued=is_queued)
        if excess is None:
            seen |= names_of
        else:
            found[place] = excess
    changed = list(book.changed.values())
    await connection.execute(
        _WRITE,
        list(book.changed),
        [each.day for each in changed],
        [each.jobs for each in changed],
        [each.bytes for each in changed],
        [each.used_until for each in changed],
    )
    return found


async def _queued(
    connection: Connection, quotas: Quotas, names: Sequence[str], tenants: dict[str, int]
) -> dict[str, int]:
    limited = limited_tenants(quotas, names)
    if not limited:
        return {}
    # More than the limit is not worth counting.
    most = [max(each.queued or 0 for each in quotas.of(tenant)) for tenant in limited]
    rows = await connection.fetch(_QUEUED, limited, [tenants[tenant] for tenant in limited], most)
    return {row["name"]: row["waiting"] for row in rows}


def _owner(job: NewJob) -> str:
    return "" if job.detail is None else job.detail.owner
