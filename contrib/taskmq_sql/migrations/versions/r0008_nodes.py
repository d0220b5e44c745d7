"""Host nodes, and what is allocated of them."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.types import TypeEngine

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_ID: Final[TypeEngine[Any]] = Uuid()
_NAME: Final[TypeEngine[Any]] = Text(collation="C")


def _vacuumed(threshold: int = 5000, **others: int) -> dict[str, float]:
    return {
        **others,
        "autovacuum_vacuum_scale_factor": 0.02,
        "autovacuum_vacuum_threshold": threshold,
        "autovacuum_vacuum_cost_delay": 0,
    }


Table(
    "node",
    metadata,
    Column("name", _NAME, nullable=False),
    Column("id", Text, nullable=False),
    # JSON: `taskmq.model.nodes.NodeTold`.
    Column("told", Text, nullable=False),
    Column("lost_after", BigInteger),
    Column("heartbeat", BigInteger, nullable=False),
    Column("registered", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("is_busy", SmallInteger, nullable=False),
    Column("is_draining", SmallInteger, nullable=False),
    Column("is_lost", SmallInteger, nullable=False),
    PrimaryKeyConstraint("name", name="node_pkey"),
    postgresql_with=_vacuumed(threshold=500, fillfactor=50),
)

Table(
    "allocation",
    metadata,
    # A UUID of version 7: in the order of their making.
    Column("id", _NAME, nullable=False),
    Column("node", _NAME, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    # Of the store: then it has the token of a dispatch.
    Column("job", _ID),
    Column("token", BigInteger),
    Column("label", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("amounts", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger),
    Column("ended", BigInteger),
    PrimaryKeyConstraint("id", name="allocation_pkey"),
    Index("allocation_open", "node", postgresql_where=text("ended is null")),
    Index("allocation_job", "job", postgresql_where=text("ended is null")),
    Index("allocation_label", "label", "id"),
    Index("allocation_ended", "ended"),
    postgresql_with=_vacuumed(),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
