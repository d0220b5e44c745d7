"""Definitions, and what is known of tasks."""

from typing import Any, Final

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, PrimaryKeyConstraint, Table, Text
from sqlalchemy.types import TypeEngine

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_NAME: Final[TypeEngine[Any]] = Text(collation="C")

Table(
    "definition",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
    PrimaryKeyConstraint("tenant", "name", name="definition_pkey"),
)

Table(
    "definition_version",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "name", "version", name="definition_version_pkey"),
)

Table(
    "task_registration",
    metadata,
    Column("task", _NAME, nullable=False),
    Column("origin", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("content", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("first_told", BigInteger, nullable=False),
    Column("last_told", BigInteger, nullable=False),
    PrimaryKeyConstraint("task", "origin", "digest", name="task_registration_pkey"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
