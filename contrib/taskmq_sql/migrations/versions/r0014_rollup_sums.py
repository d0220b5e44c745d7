"""Figures of quarters of an hour, and of all tenants; what was counted before is in none of them."""

from typing import Any, Final

from alembic import op
from sqlalchemy import BigInteger, Column, Index, MetaData, PrimaryKeyConstraint, SmallInteger, Table, Text
from sqlalchemy.types import TypeEngine

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
# What a scheduler of the version before counts is in the minutes alone.
understood_by_previous = True

metadata: Final = MetaData(schema="taskmq")

# In the order of code points, as the other stores have it.
_NAME: Final[TypeEngine[Any]] = Text(collation="C")

Table(
    "rollup_sum",
    metadata,
    Column("minute", BigInteger, nullable=False),
    # 1: a minute of all tenants; 2: a quarter of an hour of one; 3: of all.
    Column("kind", SmallInteger, nullable=False),
    Column("task", _NAME, nullable=False),
    Column("queue", _NAME, nullable=False),
    Column("tenant", _NAME, nullable=False),
    Column("figures", Text, nullable=False),
    PrimaryKeyConstraint("kind", "tenant", "minute", "task", "queue", name="rollup_sum_pkey"),
    Index("rollup_sum_minute", "minute"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
