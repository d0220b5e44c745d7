"""Statements that change one job by an operator's action."""

from typing import Final

from taskmq_sql.identity.audit import AUDITED_COLUMNS
from taskmq_sql.postgres.statements import JOB_COLUMNS
from taskmq_sql.steps import placeholders

_TAKE: Final = """
with j as materialized (
  select queue, priority, tenant, due from taskmq.job where id = $1 and version = $2 and state = $3::smallint),
r as (delete from taskmq.ready where ctid = any(array(
   select d.ctid from j cross join lateral
     (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority and r.tenant = j.tenant
        and r.due = j.due and r.id = $1 for update) d
   where $3::smallint = 1)) returning id),
g as (delete from taskmq.gated where ctid = any(array(
   select d.ctid from j cross join lateral (select ctid from taskmq.gated where id = $1 for update) d
   where $3::smallint = 1)) returning id),
t as (delete from taskmq.timer where ctid = any(array(
   select d.ctid from j cross join lateral
     (select ctid from taskmq.timer t where t.shard = $4::smallint and t.due = j.due and t.id = $1 for update) d
   where $3::smallint in (4, 13))) returning id),"""
_TAKEN: Final = """id = $1 and version = $2 and state = $3::smallint and ($3::smallint not in (1, 4, 13)
             or exists (select from r) or exists (select from g) or exists (select from t))"""
_CHANGED: Final = {
    "version": "version + 1",
    "state": """case when $3::smallint in (11, 12) and $5::smallint in (1, 13)
                  and exists (select from taskmq.dependency where dependent = $1) then 11 else $5::smallint end""",
    "queue": "coalesce($6::int, queue)",
    "priority": "coalesce($7::smallint, priority)",
    "due": "coalesce($8::bigint, due)",
    # A change sets it again.
    "scheduled": """case when $8::bigint is null then scheduled when $18::smallint <> 1
                     then coalesce(scheduled, due) end""",
    "expires": "case when $9::boolean then $10::bigint else expires end",
    "cancel_requested": "coalesce($11::text, cancel_requested)",
    "body": "case when $12::boolean then $13::bytea else body end",
    "error_type": "coalesce($15::text, error_type)",
    "error_message": "coalesce($16::text, error_message)",
    "traceback": "coalesce($17::text, traceback)",
}
_CHANGED_ROW: Final = ", ".join(_CHANGED.get(name, name) for name in JOB_COLUMNS.split(", "))
_KEEP: Final = f"""
u as (update taskmq.job set {", ".join(f"{name} = {value}" for name, value in _CHANGED.items())}
      where {_TAKEN} returning *),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
w as (insert into taskmq.timer (shard, due, id) select $4::smallint, due, id from u where state in (4, 13)),
c as (delete from taskmq.claim_line where $6::int is not null and id = any(array(
   select u.id from u cross join j where u.queue <> j.queue))),"""
_FINISH: Final = f"""
gone as (delete from taskmq.job where {_TAKEN} returning *),
d as (insert into taskmq.upstream_end (id, state) select id, $5::smallint from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, error)
      select run, id, step, child, $5::smallint,
             coalesce(nullif($15::text, '') || ': ', '') || coalesce($16::text, cancel_requested, '')
      from gone where run is not null),
l as (delete from taskmq.dependency where ctid = any(array(
   select d.ctid from gone cross join lateral (select ctid from taskmq.dependency where dependent = $1 for update) d
   where $3::smallint in (11, 12)))),
u as (insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
      select {_CHANGED_ROW}, taskmq.now_ms(), taskmq.now_ms() from gone returning *),"""
_NOTE: Final = """
n as (delete from taskmq.job_body where id = any(array(
   select id from u where $12::boolean and $14::bytea is null))),
b as (insert into taskmq.job_body (id, body) select id, $14::bytea from u where $14::bytea is not null
      on conflict (id) do update set body = excluded.body),
e as (insert into taskmq.event (id, at, number, version, kind, state, actor, note)
      select id, taskmq.now_ms(), nextval('taskmq.event_number'), version, $18::smallint, state, $19::text, $20::text
      from u)"""
_AUDIT: Final = f""",
a as (insert into taskmq.audit (at, {AUDITED_COLUMNS})
      select taskmq.now_ms(), {placeholders(len(AUDITED_COLUMNS.split(", ")), begin=21)} from u)"""
_SHOW: Final = f"""
select {JOB_COLUMNS.removesuffix(", body")}, {{finished}} as finished,
  coalesce(body, $14::bytea, (select body from taskmq.job_body b where b.id = u.id)) as body,
  (select detail from taskmq.job_detail d where d.id = u.id) as detail
from u"""
_SHOW_LIVE: Final = _SHOW.format(finished="null::bigint")
_SHOW_ENDED: Final = _SHOW.format(finished="finished")
CHANGE: Final = _TAKE + _KEEP + _NOTE + _SHOW_LIVE
"""Changes one job, by its version. The transaction that deletes its row of `ready`, `gated` or `timer` owns the job.
If a job would become free but still has dependencies, it waits again; if the last of them ends right now, its version
differs."""
CHANGE_AUDITED: Final = _TAKE + _KEEP + _NOTE + _AUDIT + _SHOW_LIVE
"""`CHANGE` with an entry of the audit."""
CHANGE_ENDS: Final = _TAKE + _FINISH + _NOTE + _SHOW_ENDED
"""`CHANGE` for a change that ends the job."""
CHANGE_ENDS_AUDITED: Final = _TAKE + _FINISH + _NOTE + _AUDIT + _SHOW_ENDED
