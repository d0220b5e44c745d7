"""Statements that apply the reports of workers."""

from typing import Final

from taskmq_sql.postgres.statements import BEFORE_REPORTS, JOB_COLUMNS, SHARD_OF_JOB

END: Final = f"""
with gone as (
  delete from taskmq.job j
  using unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::bigint[], $7::text[],
               $8::bytea[], $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[])
        as r(id, token, outcome, ran_by, began, until, content_type, result, kind, message, trace, cpu, memory)
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
  returning j.*, r.outcome, r.ran_by, r.began, r.until, r.content_type, r.result, r.kind, r.message, r.trace, r.cpu,
            r.memory),
e as (insert into taskmq.upstream_end (id, state) select id, outcome from gone where has_dependents),
i as (insert into taskmq.run_inbox (run, job, step, child, state, content_type, value, error)
      select run, id, step, child, outcome, content_type, result,
             coalesce(nullif(kind, '') || ': ', '') || coalesce(message, cancel_requested, '')
      from gone where run is not null),
h as (insert into taskmq.job_history ({JOB_COLUMNS}, ended, finished, content_type, result, processor_ms,
                                      peak_memory)
      select id, due, scheduled, token, expires, dispatched, coalesce(began, started), tenant, queue, task,
             coalesce(ran_by, worker), version + 1, attempt, priority, outcome, key, cancel_requested,
             case when kind is null and outcome in (7, 8) and cancel_requested is not null then '' else kind end,
             case when kind is null and outcome in (7, 8) then cancel_requested else message end,
             case when kind is null and outcome in (7, 8) and cancel_requested is not null then '' else trace end,
             coalesce(first_started, began, started), body, now, coalesce(until, now), content_type, result, cpu,
             memory
      from gone, (select taskmq.now_ms() as now) n)
select id, queue, version + 1 as version, has_dependents, started, worker, run from gone"""
"""Ends jobs by (id, token). No fence: the token decides, whichever scheduler applies the report."""
STARTED: Final = f"""
with {BEFORE_REPORTS}
update taskmq.job j set state = 3, version = j.version + 1, started = coalesce(r.began, j.started),
       first_started = coalesce(j.first_started, r.began), worker = coalesce(r.ran_by, j.worker)
from unnest($1::uuid[], $2::bigint[], $3::int[], $4::bigint[]) as r(id, token, ran_by, began)
     left join b on b.id = r.id
where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
returning j.id, j.queue, j.version, b.started, b.worker"""
AGAIN: Final = f"""
with n as materialized (select taskmq.now_ms() as now), {BEFORE_REPORTS}, u as (
  update taskmq.job j set state = r.after, version = j.version + 1,
         due = case when r.after in (1, 12) then j.due else coalesce(r.at, (select now from n) + r.delay) end,
         scheduled = case when r.after in (1, 12) then j.scheduled else coalesce(j.scheduled, j.due) end,
         attempt = j.attempt + (r.after = 4)::int, dispatched = case when r.after <> 4 then j.dispatched end,
         started = coalesce(r.began, j.started), first_started = coalesce(j.first_started, r.began, j.started),
         outages = case when r.after = 4 then null
                        when r.is_outage then coalesce(j.outages, 0) + 1 else j.outages end,
         worker = coalesce(r.ran_by, j.worker),
         error_type = r.kind, error_message = r.message, traceback = r.trace
  from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::int[], $5::bigint[], $6::bigint[], $7::bigint[],
              $8::text[], $9::text[], $10::text[], $11::boolean[], $12::bigint[], $13::bigint[], $14::bigint[])
       as r(id, token, after, ran_by, began, until, delay, kind, message, trace, is_outage, cpu, memory, at)
       left join b on b.id = r.id
  where j.id = any($1::uuid[]) and j.id = r.id and j.token = r.token and j.state in (2, 3)
    and j.cancel_requested is null
  returning j.id, j.due, j.tenant, j.queue, j.priority, j.version, j.attempt, j.state, r.ran_by, r.began, r.until,
            r.kind, r.message, r.trace, r.cpu, r.memory, b.started as was_started, b.worker as was_run_by),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
t as (insert into taskmq.timer (shard, due, id) select {SHARD_OF_JOB}, due, id from u where state not in (1, 12)),
a as (insert into taskmq.attempt (id, at, started, ended, attempt, worker, error_type, error_message, traceback,
                                  processor_ms, peak_memory)
      select id, now, began, coalesce(until, now), attempt - 1, ran_by, kind, message, trace, cpu, memory
      from u, n where state = 4)
select id, queue, version, state, was_started as started, was_run_by as worker from u"""
"""Returns jobs to their queues, holds them, or schedules their retry, by (id, token), unless they are being
cancelled."""
EXISTING: Final = """
select j.id, j.token, j.state, j.version, j.queue, j.tenant, j.cancel_requested from taskmq.job j
where j.id = any($1::uuid[]) order by j.id for update"""
"""Locks the live jobs whose reports did not match, and returns their present states."""
FORGOTTEN: Final = (
    """
delete from taskmq.ready where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select queue, priority, tenant, due from taskmq.job where id = i.id offset 0) j
  cross join lateral (select ctid from taskmq.ready r where r.queue = j.queue and r.priority = j.priority
                        and r.tenant = j.tenant and r.due = j.due and r.id = i.id for update) d))""",
    f"""
delete from taskmq.timer where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select {SHARD_OF_JOB} as shard, due from taskmq.job where id = i.id offset 0) j
  cross join lateral (select ctid from taskmq.timer t where t.shard = j.shard and t.due = j.due and t.id = i.id
                      for update) d))""",
    """
delete from taskmq.gated where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id)
  cross join lateral (select ctid from taskmq.gated where id = i.id for update) d))""",
    """
update taskmq.job j set state = 2, token = r.token from unnest($1::uuid[], $2::bigint[]) as r(id, token)
where j.id = any($1::uuid[]) and j.id = r.id""",
)
"""Record dispatches that the store does not remember, for jobs that are locked already."""
EVENTS: Final = """
insert into taskmq.event (id, at, number, version, kind, state, actor, note, started)
select r.id, taskmq.now_ms(), nextval('taskmq.event_number'), r.version, r.kind, r.state, r.actor, r.note, r.started
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::smallint[], $5::text[], $6::text[], $7::bigint[])
     as r(id, version, kind, state, actor, note, started)"""
