"""Jobs that wait behind gates."""

from typing import Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

Table(
    "gated",
    metadata,
    Column("id", Uuid(), nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("queue", Integer, nullable=False),
    Column("tenant", Integer, nullable=False),
    Column("slot", SmallInteger, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("gate", Text(collation="C"), nullable=False),
    PrimaryKeyConstraint("id", name="gated_pkey"),
    Index("gated_order", "slot", "gate", text("priority desc"), "due", "id"),
    Index("gated_tenant", "tenant"),
    postgresql_with={
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": 5000,
        "autovacuum_vacuum_cost_delay": 0,
    },
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
