"""The statements, planned by primary keys only: see `taskmq_sql.postgres.statements`.

The rows of `schedule` are locked before their places in `schedule_due`, everywhere and in the order of their ids.
"""

from typing import Final

__all__ = [
    "ALIVE",
    "CHANGE",
    "DROP_OCCURRENCES",
    "DUE",
    "FIND",
    "LIST",
    "LIST_CODE",
    "LIST_CODE_OF_PREFIX",
    "LIST_OF_PREFIX",
    "LOAD",
    "MAKE",
    "OCCUR",
    "OCCURRENCES",
    "PLACE",
    "REMOVE",
    "TAKE_OUT",
    "TURN",
]

_COLUMNS: Final = "id, app, name, version, is_code, definition, record, next_at"

FIND: Final = f"select {_COLUMNS} from taskmq.schedule where app = $1 and name = any($2::text[])"
LIST: Final = f"""
select {_COLUMNS} from taskmq.schedule where app = $1 and name > $2 order by app, name limit $3"""
LIST_CODE: Final = LIST.replace("where", "where is_code and")
LIST_OF_PREFIX: Final = f"""
select {_COLUMNS} from taskmq.schedule where app = $1 and name >= $2 and name <> $4 and name < $5
order by app, name limit $3"""
LIST_CODE_OF_PREFIX: Final = LIST_OF_PREFIX.replace("where", "where is_code and")
LOAD: Final = f"select {_COLUMNS} from taskmq.schedule where id = any($1::bigint[])"
ALIVE: Final = "select id from taskmq.job where id = any($1::uuid[])"

MAKE: Final = """
insert into taskmq.schedule (next_at, shard, is_code, app, name, definition, record)
values ($1, $2, $3, $4, $5, $6, $7) on conflict (app, name) do nothing returning id"""
CHANGE: Final = """
update taskmq.schedule set next_at = $3, is_code = $4, definition = $5, record = $6, version = version + 1
where id = $1 and version = $2 returning id"""
REMOVE: Final = "delete from taskmq.schedule where id = $1 and version = $2 returning id"

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
"""No lease, no change at all; else the schedules that were as they were taken to be, with their places moved."""

TAKE_OUT: Final = """
delete from taskmq.schedule_due where ctid = any(array(
  select d.ctid from unnest($1::smallint[], $2::bigint[], $3::bigint[]) as w(shard, next_at, id) cross join lateral
    (select ctid from taskmq.schedule_due where shard = w.shard and next_at = w.next_at and id = w.id
     for update) d))"""
PLACE: Final = """
insert into taskmq.schedule_due (shard, next_at, id)
select * from unnest($1::smallint[], $2::bigint[], $3::bigint[])"""
OCCUR: Final = """
insert into taskmq.occurrence (schedule, instant, run, kind, job, at)
select v.*, taskmq.now_ms() from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::uuid[]) as v
on conflict do nothing returning schedule, instant, run"""

DUE: Final = """
select d.next_at, d.id, d.shard from unnest($1::smallint[]) as s(shard) cross join lateral
  (select next_at, id, shard from taskmq.schedule_due where shard = s.shard and next_at < $2
   order by shard, next_at, id limit $3) d
order by d.next_at, d.id limit $3"""

OCCURRENCES: Final = """
select instant, run, at, kind, job from taskmq.occurrence where schedule = $1 and instant < $2
order by schedule desc, instant desc, run desc limit $3"""
DROP_OCCURRENCES: Final = """
delete from taskmq.occurrence where ctid = any(array(select ctid from taskmq.occurrence where at < $1 limit $2))"""
