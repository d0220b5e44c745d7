"""Keep the dependencies of jobs that ended because of one, and add the figures of runs."""

from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS = """
create table taskmq.failed_dependency (
  upstream uuid not null, dependent uuid not null, condition smallint not null, primary key (upstream, dependent)
);
create index failed_dependency_dependent on taskmq.failed_dependency (dependent);
alter table taskmq.attempt
  add column state smallint, add column processor_ms bigint, add column peak_memory bigint;
alter table taskmq.job_history add column processor_ms bigint, add column peak_memory bigint
"""


def upgrade() -> None:
    for statement in _STATEMENTS.split(";"):
        op.get_bind().exec_driver_sql(statement)
