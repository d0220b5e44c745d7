"""Unique keys of jobs."""

from typing import Any, Final

from alembic import op
from sqlalchemy import BigInteger, Column, MetaData, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.types import TypeEngine

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_ID: Final[TypeEngine[Any]] = Uuid()

Table(
    "unique_key",
    metadata,
    Column("name", Text, nullable=False),
    # None: of a submission that came to nothing.
    Column("id", _ID),
    Column("until", BigInteger, nullable=False),
    PrimaryKeyConstraint("name", name="unique_key_pkey"),
    postgresql_with={
        "fillfactor": 70,
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": 5000,
        "autovacuum_vacuum_cost_delay": 0,
    },
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
