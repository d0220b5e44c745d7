"""Add the run and the step of a line to `job_log`, so that the log of a run is a range of an index."""

from typing import Final

from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS: Final = (
    "alter table taskmq.job_log add column run uuid, add column step text, add column child integer",
    "create index job_log_run on taskmq.job_log (run, number) where run is not null",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
