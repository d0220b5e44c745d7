"""Add the lines of jobs with order keys: a job keeps its place while it has a row in `job` with that queue."""

from alembic import op

revision = "0107"
down_revision = "0106"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS = (
    """create table taskmq.claim_line (
  name text collate "C" not null, number bigint generated always as identity, id uuid not null,
  queue integer not null, primary key (name, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0)""",
    "create index claim_line_id on taskmq.claim_line (id)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
