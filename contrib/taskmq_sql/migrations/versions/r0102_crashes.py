"""Add the number of workers that died while they had the dispatch of a job; null if its message never came back."""

from alembic import op

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql("alter table taskmq.job add column crashes integer")
