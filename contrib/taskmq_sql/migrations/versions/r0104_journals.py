"""Add the progress and the saved values of runs.

`job_progress` has one row a job that is updated in place (HOT): no index but the key. `saved_run` has the run that
may save values of a job, and the number of saves so far; `touched` is the time of its last one.
"""

from typing import Final

from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None
understood_by_previous = True

_TABLES: Final = (
    """
create table taskmq.job_progress (
  id uuid primary key, started bigint not null, updated bigint not null, done double precision not null,
  total double precision, attempt integer not null, state smallint not null, note text not null, details bytea
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0)""",
    """
create table taskmq.saved_run (
  id uuid primary key, fence bigint not null, touched bigint not null, version integer not null,
  number integer not null, run text not null
) with (fillfactor = 70)""",
    """
create table taskmq.saved_value (
  id uuid not null, name text not null, is_reference boolean not null, value bytea not null, primary key (id, name)
)""",
)


def upgrade() -> None:
    for statement in _TABLES:
        op.get_bind().exec_driver_sql(statement)
