"""Statements that process the ends of jobs that others depend on."""

from typing import Final

from taskmq_sql.postgres.statements import JOB_COLUMNS, SHARD_OF_JOB

ANY_END: Final = "select exists (select from taskmq.upstream_end)"
TAKE_ENDS: Final = """
select number, id, state from taskmq.upstream_end order by number limit $1 for update skip locked"""
"""Locks the earliest ends that no other scheduler is processing."""
WAITING_FOR: Final = """
select e.number, d.upstream, d.dependent, d.condition, e.state
from unnest($1::bigint[], $2::uuid[], $3::smallint[]) as e(number, id, state) cross join lateral
  (select upstream, dependent, condition from taskmq.dependency where upstream = e.id
   order by upstream, dependent limit $4) d
order by e.number, d.dependent limit $4"""
"""Lists dependencies on jobs that ended."""
UPSTREAM_FAILED: Final = f"""
with gone as (
  delete from taskmq.job j using unnest($1::uuid[], $2::smallint[], $3::text[]) as r(id, outcome, why)
  where j.id = any($1::uuid[]) and j.id = r.id and j.state in (11, 12) returning j.*, r.outcome, r.why),
e as (insert into taskmq.upstream_end (id, state) select id, outcome from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, error)
      select run, id, step, child, outcome, why from gone where run is not null),
n as (insert into taskmq.event (id, at, number, version, kind, state, actor, note)
      select id, taskmq.now_ms(), nextval('taskmq.event_number'), version + 1, 15, outcome, '', why from gone)
insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished)
select id, due, scheduled, token, expires, dispatched, started, tenant, queue, task, worker, version + 1, attempt,
       priority, outcome, key, cancel_requested, '', why, '', first_started, body, now, now
from gone, (select taskmq.now_ms() as now) n"""
"""Ends jobs whose dependencies can no longer be met."""
FREE: Final = f"""
with n as materialized (select taskmq.now_ms() as now),
u as (
  update taskmq.job j set version = j.version + 1,
         state = case when j.state = 12 then 12 when j.due <= (select now from n) then 1 else 13 end,
         due = case when j.state = 12 then j.due else greatest(j.due, (select now from n)) end
  where j.id = any($1::uuid[]) and j.state in (11, 12)
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.state),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {SHARD_OF_JOB}, due, id from u where state = 13)
select distinct queue from u where state = 1"""
"""Frees jobs that wait for nothing any more. A held one gets a new version, so a concurrent release reads it
again."""
