"""Columns for the start of the first run and of interrupted ones, and for the outages of an attempt."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    # A scheduler of the version before writes none of them: such a job counts as one that has not begun before.
    for table in ("job", "job_history"):
        op.execute(f"alter table taskmq.{table} add column first_started bigint")
    op.execute("alter table taskmq.job add column outages integer")
    op.execute("alter table taskmq.event add column started bigint")
