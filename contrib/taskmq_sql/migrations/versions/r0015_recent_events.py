"""What was done to jobs of late, whichever they are."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.create_index("event_at", "event", ["at"], schema="taskmq")
