"""Columns for the job that repeats one that has ended, and for the time at which a job was to run at first."""

from alembic import op
from sqlalchemy import BigInteger, Column, Uuid

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None
# Code before it retries without a mark, and leaves the first time of a job that it puts off unknown.
understood_by_previous = True


def upgrade() -> None:
    for table in ("job", "job_history"):
        op.add_column(table, Column("scheduled", BigInteger), schema="taskmq")
    op.add_column("job_history", Column("retried_as", Uuid), schema="taskmq")
