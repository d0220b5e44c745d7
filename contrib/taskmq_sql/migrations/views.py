"""Views for people with `psql`: jobs, attempts, logs and nodes under the names that other systems use.

taskmq itself reads none of them. Every upgrade to the newest version recreates them from this code. A column stays
once it exists, so other people's views and grants keep working.

    jobs                 one row per job, live or ended
    job_definition       the last version of each definition
    job_schedule         the scheduled time of each job
    job_execution_log    one row per started attempt
    job_retry            one row per attempt after the first
    job_logs             log lines of runs
    execution_node       host nodes
    resource_allocation  present and past allocations of jobs
    users                without passwords
"""

from typing import Final

from sqlalchemy import Connection

from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.tables import SCHEMA

_COMPLETED: Final = (JobState.SUCCEEDED,)
_FAILED: Final = (JobState.FAILED, JobState.EXPIRED, JobState.UPSTREAM_FAILED)
_CANCELLED: Final = (JobState.CANCELLED, JobState.SKIPPED)


def _is(*states: JobState) -> str:
    return f"j.state in ({', '.join(str(CODES[state]) for state in states)})"


def _at(ms: str) -> str:
    return f"to_timestamp(({ms}) / 1000.0)"


_WORDS: Final = " ".join(f"when {code} then '{state}'" for state, code in CODES.items())
_STATE: Final = f"case j.state {_WORDS} end"
_STATUS: Final = f"""case when {_is(JobState.RUNNING)} then 'running' when {_is(*_COMPLETED)} then 'completed'
         when {_is(*_FAILED)} then 'failed' when {_is(*_CANCELLED)} then 'cancelled' else 'queued' end"""
_EXECUTION: Final = f"""case when {_is(JobState.DISPATCHED)} then 'CLAIMED'
         when {_is(JobState.RUNNING)} then 'PROCESSING' when {_is(*_COMPLETED)} then 'COMPLETED'
         when {_is(*_FAILED)} then 'FAILED' when {_is(*_CANCELLED)} then 'CANCELLED' else 'PENDING' end"""
_SCHEDULED: Final = _at("coalesce(j.scheduled, j.due)")
_HAS_RUN: Final = _is(JobState.RUNNING, *_COMPLETED, *_FAILED, *_CANCELLED)
_SHARED: Final = (
    "id, key, token, tenant, queue, task, worker, due, scheduled, dispatched, started, attempt, priority, version, "
    "state, error_type, error_message, body"
)
_JOBS: Final = f"""(
  select {_SHARED}, null::bigint as finished from taskmq.job
  union all select {_SHARED}, finished from taskmq.job_history) j"""
_SUBMITTED: Final = "('x' || translate(substr(j.id::text, 1, 13), '-', ''))::bit(48)::bigint"

# Text may contain NUL, which `jsonb` rejects: one such job must not break the view.
_PART_OF: Final = f"""
create or replace function {SCHEMA}.part_of(content bytea, name text) returns jsonb
language plpgsql immutable parallel safe as $$
begin
  return convert_from(content, 'UTF8')::jsonb -> name;
exception when others then
  return null;
end $$"""

VIEWS: Final = {
    "jobs": f"""
select j.id as job_id, {_STATUS} as status, k.name as job_type, {_SCHEDULED} as schedule_time,
       {_at("j.started")} as start_time, {_at("j.finished")} as end_time,
       taskmq.part_of(coalesce(j.body, (select body from taskmq.job_body b where b.id = j.id)), 'kwargs') as payload,
       j.attempt - 1 as retry_count,
       {
        _at(
            f"greatest({_SUBMITTED}, j.dispatched, j.started, j.finished, (select max(e.at) from taskmq.event e "
            "where e.id = j.id))"
        )
    } as last_updated,
       {_EXECUTION} as execution_status, {_STATE} as state, {_at(_SUBMITTED)} as submitted, j.key as client_id,
       nullif(t.name, '') as tenant, q.name as queue, j.priority, w.name as worker, j.version, j.error_type,
       j.error_message
from {_JOBS} join taskmq.task k on k.id = j.task join taskmq.queue q on q.id = j.queue
join taskmq.tenant t on t.id = j.tenant left join taskmq.worker w on w.id = j.worker""",
    "job_definition": f"""
select d.name as job_id, v.actor as user_id, d.name,
       coalesce(taskmq.part_of(convert_to(v.content, 'UTF8'), 'description') #>> '{{}}', '') as description,
       coalesce(taskmq.part_of(convert_to(v.content, 'UTF8'), 'kwargs'), '{{}}') as parameters,
       case when d.is_deleted then 'deleted' else 'active' end as status,
       {_at("(select min(f.at) from taskmq.definition_version f where f.tenant = d.tenant and f.name = d.name)")}
         as created_at,
       {_at("v.at")} as updated_at, d.version, nullif(t.name, '') as tenant
from taskmq.definition d join taskmq.tenant t on t.id = d.tenant
join taskmq.definition_version v on v.tenant = d.tenant and v.name = d.name and v.version = d.version""",
    "job_schedule": f"""
select j.id as job_id, {_SCHEDULED} as scheduled_time,
       case when {_is(JobState.CANCELLED)} then 'canceled' else 'scheduled' end as status
from {_JOBS}""",
    "job_execution_log": f"""
select a.id as job_id, w.name as node_id, 'FAILED' as execution_status, {_at("a.started")} as start_time,
       {_at("a.ended")} as end_time, a.attempt, a.error_type, a.error_message
from taskmq.attempt a left join taskmq.worker w on w.id = a.worker
union all
select j.id, coalesce((select n.node from taskmq.allocation n
                       where n.label = j.id::text and n.token = j.token limit 1), w.name),
       {_EXECUTION}, {_at("j.started")}, {_at("j.finished")}, j.attempt, j.error_type,
       j.error_message
from {_JOBS} left join taskmq.worker w on w.id = j.worker
where {_is(JobState.DISPATCHED)} or (j.started is not null and {_HAS_RUN})""",
    "job_retry": f"""
select md5(a.id::text || ':' || (a.attempt + 1))::uuid as retry_id, a.id as job_id, a.attempt + 1 as attempt,
       case when b.attempt is not null or {_is(*_FAILED)} then 'failed' when {_is(*_COMPLETED)} then 'completed'
         when {_is(*_CANCELLED)} then 'cancelled' when {_is(JobState.RUNNING)} then 'in_progress' else 'queued' end
         as status,
       {_at(f"coalesce(b.started, case when {_HAS_RUN} then j.started end, j.due)")} as retry_time
from taskmq.attempt a join {_JOBS} on j.id = a.id
left join taskmq.attempt b on b.id = a.id and b.attempt = a.attempt + 1""",
    "job_logs": f"""
select md5('job_log:' || l.number)::uuid as log_id, l.job::uuid as job_id, l.message as log_message,
       case when l.level >= 40 then 'ERROR' when l.level >= 30 then 'WARNING' when l.level >= 20 then 'INFO'
         else 'DEBUG' end as log_level,
       {_at("l.at")} as log_time, l.attempt, l.logger, l.worker, l.number
from taskmq.job_log l""",
    "execution_node": f"""
select n.id as node_id, n.name, taskmq.part_of(convert_to(n.told, 'UTF8'), 'address') #>> '{{}}' as ip_address,
       case when n.is_lost = 1 then 'lost' when n.is_draining = 1 then 'draining' when n.is_busy = 1 then 'busy'
         else 'available' end as status,
       {_at("n.registered")} as registered, {_at("n.heartbeat")} as last_heartbeat
from taskmq.node n""",
    "resource_allocation": f"""
select a.id as allocation_id, a.label as job_id, a.node as node_id, {_at("a.since")} as start_time,
       {_at("coalesce(a.ended, a.until)")} as end_time,
       a.amounts::jsonb as amounts, nullif(a.tenant, '') as tenant
from taskmq.allocation a""",
    "users": f"""
select u.id as user_id, u.name as username, u.email, {_at("u.created")} as created_at,
       u.disabled is not null as is_disabled
from taskmq.user u""",
}
"""The query of each view, by name."""


def make_views(connection: Connection) -> None:
    """Create or replace the views; the tables must have the newest version."""
    connection.exec_driver_sql(_PART_OF)
    for name, query in VIEWS.items():
        connection.exec_driver_sql(f"create or replace view {SCHEMA}.{name} as {query}")
