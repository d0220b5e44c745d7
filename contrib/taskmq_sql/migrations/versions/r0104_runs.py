"""Add workflows and runs; `taskmq_sql.jobs.tables` describes the tables.

`run`, `step` and `child` of a job are null for nearly all jobs. Small rows that come and go (inbox, timers) are
vacuumed early.

The previous code must not use these tables: it ends the job of a step without a row for its run, which would wait for
ever.
"""

from typing import Final

from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None
understood_by_previous = False

_BUSY: Final = """autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0"""
_STATEMENTS: Final = (
    "alter table taskmq.job add column run uuid, add column step text, add column child integer",
    """
create table taskmq.workflow (
  tenant text collate "C" not null, name text collate "C" not null, version text not null, primary key (tenant, name)
)""",
    """
create table taskmq.workflow_version (
  tenant text collate "C" not null, name text collate "C" not null, version text not null, at bigint not null,
  primary key (tenant, name, version)
)""",
    "create index workflow_version_version on taskmq.workflow_version (version)",
    "create table taskmq.workflow_content (version text primary key, content bytea not null)",
    f"""
create table taskmq.run (
  id uuid primary key, tenant text collate "C" not null, workflow text collate "C" not null, version text not null,
  parent uuid, state smallint not null, ended bigint, record bytea not null, value bytea
) with (fillfactor = 70, {_BUSY})""",
    "create index run_tenant on taskmq.run (tenant, id)",
    "create index run_workflow on taskmq.run (tenant, workflow, id)",
    "create index run_state on taskmq.run (state, id) where state <> 2",
    "create index run_parent on taskmq.run (parent, id) where parent is not null",
    "create index run_version on taskmq.run (version)",
    "create index run_ended on taskmq.run (ended) where ended is not null",
    f"""
create table taskmq.run_step (
  run uuid not null, name text collate "C" not null, child integer not null, record bytea not null, value bytea,
  primary key (run, name, child)
) with (fillfactor = 70, {_BUSY})""",
    f"""
create table taskmq.run_inbox (
  number bigint generated always as identity, run uuid not null, job uuid, step text, child integer, state smallint,
  content_type text, value bytea, error text, record bytea, primary key (run, number)
) with ({_BUSY})""",
    """
create table taskmq.run_signal (
  run uuid not null, name text collate "C" not null, number bigint not null, record bytea not null,
  primary key (run, name, number)
)""",
    """
create table taskmq.run_answer (
  run uuid not null, id text collate "C" not null, answer text, primary key (run, id)
)""",
    f"""
create table taskmq.run_timer (
  number bigint generated always as identity primary key, at bigint not null, generation integer not null,
  run uuid not null, step text not null
) with ({_BUSY})""",
    "create index run_timer_at on taskmq.run_timer (at, number)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
