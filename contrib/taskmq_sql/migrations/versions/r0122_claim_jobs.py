"""Index the keys of jobs, for deletions of ended jobs."""

from alembic import op

revision = "0122"
down_revision = "0121"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql("create index claim_job on taskmq.claim (job) where ttl is not null")
