"""Firing schedules in PostgreSQL.

Firing many schedules takes one transaction of few statements: the fence, the unchanged rows, their due times, their
occurrences, and the jobs of new occurrences. The statements are planned by primary keys only: see
`taskmq_sql.postgres.statements`.
"""

import uuid
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import (
    SCHEDULE_SHARDS,
    DueSchedule,
    NewJob,
    ScheduleFiring,
    partition_key,
    schedule_shard,
)
from taskmq.errors import OccurrenceConflict
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.submission import Numbers, insert_jobs, numbers_of

TURN: Final = """
with fence as materialized (
  select true as held from taskmq.lease where key = $7 and epoch = $8 and holder is not null for share),
u as (update taskmq.schedule s set next_at = v.next_at, record = v.record, version = s.version + 1
  from unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bytea[])
    as v(id, version, shard, before, next_at, record)
  where s.id = any($1::bigint[]) and s.id = v.id and s.version = v.version and exists (select from fence)
  returning s.id, v.shard, v.before, v.next_at),
gone as (delete from taskmq.schedule_due where ctid = any(array(
  select d.ctid from u cross join lateral (select ctid from taskmq.schedule_due
    where shard = u.shard and next_at = u.before and id = u.id for update) d
  where u.before is distinct from u.next_at))),
placed as (insert into taskmq.schedule_due (shard, next_at, id)
  select shard, next_at, id from u where next_at is not null and next_at is distinct from before)
select (select held from fence) as held, array(select id from u) as taken"""
"""Without the lease, changes nothing. Otherwise returns the schedules that were unchanged, with new due times."""

OCCUR: Final = """
insert into taskmq.occurrence (schedule, instant, run, kind, job, at)
select v.*, taskmq.now_ms() from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::uuid[]) as v
on conflict do nothing returning schedule, instant, run"""

DUE: Final = """
select d.next_at, d.id, d.shard from unnest($1::smallint[]) as s(shard) cross join lateral
  (select next_at, id, shard from taskmq.schedule_due where shard = s.shard and next_at < $2
   order by shard, next_at, id limit $3) d
order by d.next_at, d.id limit $3"""
DROP: Final = """
delete from taskmq.occurrence where ctid = any(array(select ctid from taskmq.occurrence where at < $1 limit $2))
returning run"""


class PostgresFirings:
    """The `Firings` of a store in PostgreSQL, with a dedicated connection."""

    drop = DROP

    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueSchedule]:
        shards = [shard for shard in range(SCHEDULE_SHARDS) if shard % self._database.partitions == partition]
        rows = await self._database.firings.run(
            "read", lambda connection: connection.fetch(DUE, shards, until, limit)
        )
        return [DueSchedule(*row) for row in rows]

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        jobs = [one.job for firing in firings for one in firing.occurrences if one.job is not None]
        numbers = await numbers_of(self._database.names, jobs)
        ordered = sorted(firings, key=lambda firing: firing.before.id)

        async def fire(connection: Connection) -> set[int] | None:
            row = await connection.fetchrow(
                TURN,
                [firing.before.id for firing in ordered],
                [firing.before.version for firing in ordered],
                [schedule_shard(firing.before.app, firing.before.name) for firing in ordered],
                [firing.before.next for firing in ordered],
                [firing.next for firing in ordered],
                [firing.record for firing in ordered],
                partition_key(partition),
                epoch,
            )
            if row is None or row["held"] is None:
                return None
            taken = set(row["taken"])
            done = [firing for firing in ordered if firing.before.id in taken]
            if conflicts := await _occur(connection, done, numbers):
                raise OccurrenceConflict(conflicts)
            return taken

        return await self._database.firings.run("transaction", fire)


async def _occur(
    connection: Connection, firings: Sequence[ScheduleFiring], numbers: Numbers
) -> frozenset[tuple[int, int, str]]:
    """Insert the occurrences and submit the jobs of new ones; return those whose keys belong to other jobs."""
    jobs: dict[tuple[int, int, str], NewJob | None] = {}
    kinds: list[str] = []
    for firing in firings:
        for one in firing.occurrences:
            if (key := (firing.before.id, one.instant, one.run)) not in jobs:
                jobs[key] = one.job
                kinds.append(one.kind)
    if not jobs:
        return frozenset()
    rows = await connection.fetch(
        OCCUR,
        [schedule for schedule, _, _ in jobs],
        [instant for _, instant, _ in jobs],
        [run for _, _, run in jobs],
        kinds,
        [None if job is None else uuid.UUID(job.id) for job in jobs.values()],
    )
    new = {key: job for row in rows if (job := jobs[key := (row[0], row[1], row[2])]) is not None}
    answers = await insert_jobs(connection, list(new.values()), numbers) if new else []
    return frozenset(key for key, answer in zip(new, answers, strict=True) if answer.is_conflict)
