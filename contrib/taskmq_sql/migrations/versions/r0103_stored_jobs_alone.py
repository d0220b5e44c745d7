"""Add what stored jobs had in the state before: claims, lines, rates, progress and saved values.

claim              the dispatch that last held a place; `until`, `content_type` and `result` outlive its history
claim_line         a job with an order key keeps its place while it has a row in `job` with that queue
rate               `used` is the instant until which a rate is used up, in seconds since the epoch
job_progress       one row a job, updated in place (HOT): no index but the key
saved_run          the run that may save values of a job, the number of saves, and the time of the last one
failed_dependency  dependencies of jobs that ended because of one: a retry lets them wait again
"""

from typing import Final

from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None
understood_by_previous = True

_BUSY: Final = """autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0"""
_STATEMENTS: Final = (
    f"""
create table taskmq.claim (
  name text collate "C" not null, place integer not null, job uuid, token bigint, fence bigint not null, ttl bigint,
  until bigint, content_type text, result bytea, primary key (name, place)
) with (fillfactor = 50, {_BUSY})""",
    "create index gated_gate on taskmq.gated (gate, priority desc, due, id)",
    f"""
create table taskmq.claim_line (
  name text collate "C" not null, number bigint generated always as identity, id uuid not null,
  queue integer not null, primary key (name, number)
) with ({_BUSY})""",
    "create index claim_line_id on taskmq.claim_line (id)",
    f"""
create table taskmq.rate (key text collate "C" primary key, used double precision not null)
with (fillfactor = 50, {_BUSY})""",
    f"""
create table taskmq.job_progress (
  id uuid primary key, started bigint not null, updated bigint not null, done double precision not null,
  total double precision, attempt integer not null, state smallint not null, note text not null, details bytea
) with (fillfactor = 50, {_BUSY})""",
    """
create table taskmq.saved_run (
  id uuid primary key, fence bigint not null, touched bigint not null, version integer not null,
  number integer not null, run text not null
) with (fillfactor = 70)""",
    """
create table taskmq.saved_value (
  id uuid not null, name text not null, is_reference boolean not null, value bytea not null, primary key (id, name)
)""",
    """
create table taskmq.failed_dependency (
  upstream uuid not null, dependent uuid not null, condition smallint not null, primary key (upstream, dependent)
)""",
    "create index failed_dependency_dependent on taskmq.failed_dependency (dependent)",
    """
alter table taskmq.attempt
  add column state smallint, add column processor_ms bigint, add column peak_memory bigint""",
    "alter table taskmq.job_history add column processor_ms bigint, add column peak_memory bigint",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
