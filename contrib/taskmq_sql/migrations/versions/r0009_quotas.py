"""What was submitted under quotas."""

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, PrimaryKeyConstraint, Table, Text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

Table(
    "quota_usage",
    metadata,
    Column("name", Text, nullable=False),
    Column("day", Integer, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("used_until", Double, nullable=False),
    PrimaryKeyConstraint("name", name="quota_usage_pkey"),
    postgresql_with={
        "fillfactor": 50,
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": 5000,
        "autovacuum_vacuum_cost_delay": 0,
    },
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
