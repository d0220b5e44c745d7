"""What is done to many jobs."""

from typing import Final

from alembic import op
from sqlalchemy import BigInteger, Column, Index, MetaData, PrimaryKeyConstraint, Table, Text, text

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

Table(
    "bulk",
    metadata,
    Column("id", Text(collation="C"), nullable=False),
    Column("tenant", Text),
    Column("due", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("id", name="bulk_pkey"),
    Index("bulk_open", "due", "id", postgresql_where=text("ended is null")),
    Index("bulk_tenant", "tenant", "id"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
