"""Jobs that wait for others."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Uuid,
)
from sqlalchemy.types import TypeEngine

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
# It submits none that wait. What ends without a word of it while it still runs is found by the hourly upkeep.
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_ID: Final[TypeEngine[Any]] = Uuid()


def _vacuumed(threshold: int) -> dict[str, float]:
    return {
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": threshold,
        "autovacuum_vacuum_cost_delay": 0,
    }


Table(
    "dependency",
    metadata,
    Column("upstream", _ID, nullable=False),
    Column("dependent", _ID, nullable=False),
    Column("condition", SmallInteger, nullable=False),
    PrimaryKeyConstraint("upstream", "dependent", name="dependency_pkey"),
    Index("dependency_dependent", "dependent", "upstream"),
    postgresql_with=_vacuumed(5000),
)

Table(
    "upstream_end",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("id", _ID, nullable=False),
    Column("state", SmallInteger, nullable=False),
    PrimaryKeyConstraint("number", name="upstream_end_pkey"),
    postgresql_with=_vacuumed(500),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
    op.add_column("job", Column("has_dependents", Boolean), schema="taskmq")
