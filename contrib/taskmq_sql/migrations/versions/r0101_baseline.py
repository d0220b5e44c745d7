"""Tables of the first release; `taskmq_sql.jobs.tables` describes them.

Databases of development versions, with revisions below this one, are refused: there is no upgrade path for them.
"""

import secrets
from typing import Final

from alembic import op
from sqlalchemy import text

from taskmq.model.jobs.proofs import new_report_key

revision = "0101"
down_revision = None
branch_labels = None
depends_on = None


def _autovacuum(scale: float = 0.02, threshold: int = 5000) -> str:
    """Return storage parameters for a table whose rows are updated or deleted all the time."""
    return (
        f"autovacuum_vacuum_scale_factor = {scale}, autovacuum_vacuum_threshold = {threshold}, "
        "autovacuum_vacuum_cost_delay = 0"
    )


# Names compare by code points (collate "C"), as in the other stores. Wide columns come first, which avoids padding.
_TABLES: Final = f"""
-- `created` is null for a tenant that jobs name but no user added.
create table taskmq.tenant (
  id integer generated always as identity primary key, name text not null unique, created bigint, disabled bigint,
  description text not null default ''
);
create table taskmq.queue (
  id integer generated always as identity primary key, name text not null unique, partition smallint not null
);
create table taskmq.task (
  id integer generated always as identity primary key, name text not null unique
);
create table taskmq.worker (
  id integer generated always as identity primary key, name text not null unique
);
-- Null for nearly all jobs: `has_dependents`, `scheduled` (first planned time of the job, if that is not `due`),
-- `first_started` (start of the first run; `started` is that of the last) and `outages` (of the attempt). If `body`
-- is null, the body is in job_body.
create table taskmq.job (
  id uuid primary key, due bigint not null, token bigint not null default 0, expires bigint, dispatched bigint,
  started bigint, tenant integer not null, queue integer not null, task integer not null, worker integer,
  version integer not null default 1, attempt integer not null default 1, priority smallint not null,
  state smallint not null, key text, cancel_requested text, error_type text, error_message text, traceback text,
  body bytea, has_dependents boolean, scheduled bigint, first_started bigint, outages integer
) with (fillfactor = 70, {_autovacuum()});
create table taskmq.job_body (
  id uuid primary key, body bytea not null
);
create table taskmq.job_detail (
  id uuid primary key, detail text not null
);
create table taskmq.job_key (
  tenant integer not null, key text not null, id uuid not null, fingerprint bytea not null,
  primary key (tenant, key)
);
-- `id` is null for a submission that failed; after `until` the key is free in any case.
create table taskmq.unique_key (
  name text primary key, id uuid, until bigint not null
) with (fillfactor = 70, {_autovacuum()});
-- `day` counts from the epoch; `jobs` and `bytes` are of that day; the rate is used up until `used_until`.
create table taskmq.quota_usage (
  name text primary key, day integer not null, jobs bigint not null, bytes bigint not null,
  used_until double precision not null
) with (fillfactor = 50, {_autovacuum()});
create table taskmq.ready (
  queue integer not null, priority smallint not null, tenant integer not null, due bigint not null,
  id uuid not null, primary key (queue, priority, tenant, due, id)
) with ({_autovacuum()});
create table taskmq.gated (
  id uuid primary key, due bigint not null, queue integer not null, tenant integer not null,
  partition smallint not null, priority smallint not null, gate text collate "C" not null
) with ({_autovacuum()});
create index gated_order on taskmq.gated (partition, gate, priority desc, due, id);
create index gated_tenant on taskmq.gated (tenant);
create table taskmq.timer (
  shard smallint not null, due bigint not null, id uuid not null, primary key (shard, due, id)
) with ({_autovacuum(scale=0.01)});
create table taskmq.dispatch_batch (
  id bigint generated always as identity primary key, partition smallint not null, epoch bigint not null,
  at bigint not null, confirmed boolean not null default false, ids uuid[] not null, tokens bigint[] not null
) with ({_autovacuum(threshold=500)});
create table taskmq.dependency (
  upstream uuid not null, dependent uuid not null, condition smallint not null, primary key (upstream, dependent)
) with ({_autovacuum()});
create index dependency_dependent on taskmq.dependency (dependent, upstream);
-- Processed in the order of `number`.
create table taskmq.upstream_end (
  number bigint generated always as identity primary key, id uuid not null, state smallint not null
) with ({_autovacuum(threshold=500)});
-- `ended` is the store's time; `finished` is the time the worker reported, which may be any instant. `retried_as` is
-- the job that repeats this one.
create table taskmq.job_history (
  id uuid not null, due bigint not null, token bigint not null default 0, expires bigint, dispatched bigint,
  started bigint, tenant integer not null, queue integer not null, task integer not null, worker integer,
  version integer not null default 1, attempt integer not null default 1, priority smallint not null,
  state smallint not null, key text, cancel_requested text, error_type text, error_message text, traceback text,
  body bytea, ended bigint not null, finished bigint not null, content_type text, result bytea, scheduled bigint,
  retried_as uuid, first_started bigint, primary key (id, ended)
) partition by range (ended);
create index job_history_state on taskmq.job_history (state, id) where state <> 5;
create index job_history_task on taskmq.job_history (tenant, task, id);
create index job_history_task_unusual on taskmq.job_history (tenant, task, id) where state <> 5;
create index job_history_tenant on taskmq.job_history (tenant, id);
create index job_history_tenant_state on taskmq.job_history (tenant, state, id) where state <> 5;
create table taskmq.attempt (
  id uuid not null, at bigint not null, started bigint, ended bigint not null, attempt integer not null,
  worker integer, error_type text, error_message text, traceback text, primary key (id, attempt, at)
) partition by range (at);
-- `number` counts all events, from the sequence event_number: it orders events of the same ms. `started` is the start
-- of the interrupted run.
create table taskmq.event (
  id uuid not null, at bigint not null, number bigint not null, version integer not null, kind smallint not null,
  state smallint not null, actor text not null default '', note text not null default '', started bigint,
  primary key (id, at, number)
) partition by range (at);
create index event_at on taskmq.event (at);
-- `holder` is null after a release.
create table taskmq.lease (
  key text primary key, epoch bigint not null, holder text, expires bigint not null, note text not null default ''
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100);
create table taskmq.setting (
  name text primary key, value text not null
);
-- The newest key has the highest number.
create table taskmq.report_key (
  number bigint generated always as identity primary key, id text not null unique, secret bytea not null,
  created bigint not null
);
-- `next_at` equals that of schedule_due, to find the row there.
create table taskmq.schedule (
  id bigint generated always as identity primary key, next_at bigint, version integer not null default 1,
  shard smallint not null, is_code boolean not null, app text collate "C" not null, name text collate "C" not null,
  definition bytea not null, record bytea not null, constraint schedule_name_key unique (app, name)
) with (fillfactor = 80, {_autovacuum()});
create index schedule_code on taskmq.schedule (app, name) where is_code;
create table taskmq.schedule_due (
  shard smallint not null, next_at bigint not null, id bigint not null, primary key (shard, next_at, id)
) with ({_autovacuum(scale=0.01)});
create table taskmq.occurrence (
  schedule bigint not null, instant bigint not null, at bigint not null, job uuid, run text not null default '',
  kind text not null, primary key (schedule, instant, run)
);
-- Rows arrive in the order of their times.
create index occurrence_at on taskmq.occurrence using brin (at);
create table taskmq.definition (
  tenant integer not null, name text collate "C" not null, version integer not null, is_deleted boolean not null,
  primary key (tenant, name)
);
-- `content` is canonical JSON: equal contents have equal texts.
create table taskmq.definition_version (
  tenant integer not null, name text collate "C" not null, version integer not null, at bigint not null,
  actor text not null, content text not null, primary key (tenant, name, version)
);
-- `digest` is that of the content: one row for each form that the task has had.
create table taskmq.task_registration (
  task text collate "C" not null, origin text not null, digest bytea not null, content text not null,
  worker text not null, first_told bigint not null, last_told bigint not null, primary key (task, origin, digest)
);
-- `told` is JSON: `taskmq.model.nodes.NodeTold`.
create table taskmq.node (
  name text collate "C" primary key, id text not null, told text not null, lost_after bigint,
  heartbeat bigint not null, registered bigint not null, epoch bigint not null, is_busy smallint not null,
  is_draining smallint not null, is_lost smallint not null
) with (fillfactor = 50, {_autovacuum(threshold=500)});
-- `id` is a UUID of version 7, so rows sort by their creation. `token` is the dispatch token if the job is in the
-- store.
create table taskmq.allocation (
  id text collate "C" primary key, node text collate "C" not null, epoch bigint not null, job uuid, token bigint,
  label text not null, tenant text not null, task text not null, amounts text not null, since bigint not null,
  until bigint, ended bigint
) with ({_autovacuum()});
create index allocation_ended on taskmq.allocation (ended);
create index allocation_job on taskmq.allocation (job) where ended is null;
create index allocation_label on taskmq.allocation (label, id);
create index allocation_open on taskmq.allocation (node) where ended is null;
-- `tenant` is null for a bulk over all tenants. `key` identifies the request, with its tenant: a repeated request
-- returns the same bulk.
create table taskmq.bulk (
  id text collate "C" primary key, tenant text, due bigint not null, ended bigint, version bigint not null,
  content text not null, key text
);
create index bulk_open on taskmq.bulk (due, id) where ended is null;
create index bulk_tenant on taskmq.bulk (tenant, id);
create unique index bulk_key on taskmq.bulk (key);
create table taskmq.user (
  id text primary key, name text not null, name_key text collate "C" not null, email text not null,
  password text not null, created bigint not null, version integer not null, disabled bigint,
  password_changed bigint, last_login bigint, constraint user_name_key unique (name_key)
);
create table taskmq.membership (
  user_id text not null, tenant text not null, role text not null, tasks text not null,
  primary key (user_id, tenant)
);
create index membership_tenant on taskmq.membership (tenant);
create table taskmq.session (
  digest bytea primary key, id text not null unique, user_id text not null, created bigint not null,
  last_used bigint not null, idle_ms bigint not null, ends bigint not null, address text not null,
  agent text not null
);
create index "session_user" on taskmq.session (user_id);
create table taskmq.token (
  digest bytea primary key, id text not null unique, user_id text not null, name text not null, scopes text,
  tenants text, tasks text not null, created bigint not null, expires bigint, last_used bigint,
  constraint token_name_key unique (user_id, name)
);
create table taskmq.login_failure (
  key text primary key, failures integer not null, at bigint not null
);
create table taskmq.audit (
  number bigint generated always as identity primary key, at bigint not null, action text not null,
  kind text not null, subject text not null, tenant text not null, user_id text not null, via text not null,
  credential text not null, request_id text not null, who bytea, who_salt bytea, who_commitment bytea not null,
  what bytea, what_salt bytea, what_commitment bytea not null
);
create index audit_at on taskmq.audit (at);
create index audit_subject on taskmq.audit (kind, subject, number);
create index audit_tenant on taskmq.audit (tenant, number);
create index audit_user on taskmq.audit (user_id, number);
create table taskmq.audit_seal (
  position bigint primary key, number bigint not null unique, hash bytea not null
);
create table taskmq.job_log (
  number bigint generated always as identity primary key, at bigint not null, token bigint not null,
  line integer not null, attempt integer not null, level smallint not null, job text not null,
  tenant text not null, task text not null, queue text not null, worker text not null, logger text not null,
  message text not null, constraint job_log_line unique (job, token, line)
);
create index job_log_level on taskmq.job_log (level, at);
create index job_log_tenant on taskmq.job_log (tenant, number);
create table taskmq.rollup (
  minute bigint not null, task text collate "C" not null, queue text collate "C" not null,
  tenant text collate "C" not null, figures text not null, primary key (minute, task, queue, tenant)
);
-- `kind` 1: one minute, all tenants; 2: a quarter of an hour, one tenant; 3: a quarter of an hour, all tenants.
create table taskmq.rollup_sum (
  minute bigint not null, kind smallint not null, task text collate "C" not null, queue text collate "C" not null,
  tenant text collate "C" not null, figures text not null, primary key (kind, tenant, minute, task, queue)
);
create index rollup_sum_minute on taskmq.rollup_sum (minute);
create table taskmq.run_failure (
  number bigint generated always as identity primary key, at bigint not null, seconds double precision,
  attempt integer not null, job text not null, event text not null, task text not null, queue text not null,
  tenant text not null, worker text not null, error text not null, reason text not null,
  message text not null default '', traceback text not null default ''
);
create index run_failure_at on taskmq.run_failure (at);
create index run_failure_job on taskmq.run_failure (job);
create index run_failure_tenant on taskmq.run_failure (tenant, number);
create table taskmq.alert_rule (
  tenant text collate "C" not null, name text collate "C" not null, version integer not null,
  content text not null, primary key (tenant, name)
);
create table taskmq.alert (
  tenant text collate "C" not null, rule text collate "C" not null, subject text collate "C" not null,
  version integer not null, changed bigint not null, content text not null, primary key (tenant, rule, subject)
);
create table taskmq.alert_silence (
  id text primary key, tenant text not null, ends bigint not null, content text not null
);
-- `next_at` is null when the notice needs no more work.
create table taskmq.alert_notice (
  id text primary key, at bigint not null, next_at bigint, tries integer not null, content text not null,
  tenant text collate "C" not null default '', host text collate "C" not null default ''
);
create index alert_notice_due on taskmq.alert_notice (tenant, next_at, id) where next_at is not null;
create index alert_notice_tenant on taskmq.alert_notice (tenant, at);
create sequence taskmq.event_number cache 1;
-- Ids and tokens are almost random: compression would gain nothing.
alter table taskmq.dispatch_batch alter column ids set storage external, alter column tokens set storage external;
-- Rounded down: an instant is never ahead of the clock.
create function taskmq.now_ms() returns bigint language sql stable parallel safe as
  $$ select floor(extract(epoch from statement_timestamp()) * 1000)::bigint $$;
insert into taskmq.setting (name, value) values ('partitions', '8')
"""

# Otherwise a role that may insert could block the chain for good, with a seal at the highest possible position.
_CHECK_SEAL: Final = """
create function taskmq.check_seal() returns trigger language plpgsql as $$
declare following bigint := coalesce((select max(position) from taskmq.audit_seal), 0) + 1;
begin
  if new.position <> following then
    raise check_violation
      using message = format('the next seal has position %s, and not %s', following, new.position);
  end if;
  return new;
end $$"""
_SEALS_FOLLOW: Final = """
create trigger audit_seal_follows before insert on taskmq.audit_seal
for each row execute function taskmq.check_seal()"""
_FIRST_KEY: Final = """
insert into taskmq.report_key (id, secret, created) values (:id, :secret, taskmq.now_ms())"""


def upgrade() -> None:
    connection = op.get_bind()
    for statement in (*_TABLES.split(";\n"), _CHECK_SEAL, _SEALS_FOLLOW):
        connection.exec_driver_sql(statement)
    # Created with the tables: every backup has the key, even one from before the first dispatch.
    key = new_report_key(secrets.token_bytes(35))
    connection.execute(text(_FIRST_KEY), {"id": key.id, "secret": key.secret})
