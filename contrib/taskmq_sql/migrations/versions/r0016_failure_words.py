"""What errors of the broker lane have said."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    # A scheduler of the version before writes none.
    op.execute("alter table taskmq.run_failure add column message text not null default ''")
    op.execute("alter table taskmq.run_failure add column traceback text not null default ''")
