"""Add the groups of users, by tenant."""

from alembic import op

revision = "0116"
down_revision = "0115"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql("alter table taskmq.membership add column groups text not null default '[]'")
