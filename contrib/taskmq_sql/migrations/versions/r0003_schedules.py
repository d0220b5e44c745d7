"""Schedules of the store."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.types import TypeEngine

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_NAME: Final[TypeEngine[Any]] = Text(collation="C")


def _vacuumed(scale: float = 0.02, threshold: int = 5000, **others: int) -> dict[str, float]:
    return {
        **others,
        "autovacuum_vacuum_scale_factor": scale,
        "autovacuum_vacuum_threshold": threshold,
        "autovacuum_vacuum_cost_delay": 0,
    }


Table(
    "schedule",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    # As in schedule_due, which can so be found.
    Column("next_at", BigInteger),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("shard", SmallInteger, nullable=False),
    Column("is_code", Boolean, nullable=False),
    Column("app", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("record", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="schedule_pkey"),
    UniqueConstraint("app", "name", name="schedule_name_key"),
    Index("schedule_code", "app", "name", postgresql_where=text("is_code")),
    postgresql_with=_vacuumed(fillfactor=80),
)

Table(
    "schedule_due",
    metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("id", BigInteger, nullable=False),
    PrimaryKeyConstraint("shard", "next_at", "id", name="schedule_due_pkey"),
    postgresql_with=_vacuumed(scale=0.01),
)

Table(
    "occurrence",
    metadata,
    Column("schedule", BigInteger, nullable=False),
    Column("instant", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("job", Uuid()),
    Column("run", Text, nullable=False, server_default=text("''")),
    Column("kind", Text, nullable=False),
    PrimaryKeyConstraint("schedule", "instant", "run", name="occurrence_pkey"),
    # They come in the order of their times.
    Index("occurrence_at", "at", postgresql_using="brin"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
