"""What is remembered of runs: lines of logs, figures by the minute, failures, alerts."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
understood_by_previous = True

metadata: Final = MetaData(schema="taskmq")

# In the order of code points, as the other stores have it.
_NAME: Final[TypeEngine[Any]] = Text(collation="C")

Table(
    "job_log",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("line", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("level", SmallInteger, nullable=False),
    Column("job", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("logger", Text, nullable=False),
    Column("message", Text, nullable=False),
    PrimaryKeyConstraint("number", name="job_log_pkey"),
    UniqueConstraint("job", "token", "line", name="job_log_line"),
    Index("job_log_level", "level", "at"),
    Index("job_log_tenant", "tenant", "number"),
)

Table(
    "rollup",
    metadata,
    Column("minute", BigInteger, nullable=False),
    Column("task", _NAME, nullable=False),
    Column("queue", _NAME, nullable=False),
    Column("tenant", _NAME, nullable=False),
    Column("figures", Text, nullable=False),
    PrimaryKeyConstraint("minute", "task", "queue", "tenant", name="rollup_pkey"),
)

Table(
    "run_failure",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("seconds", Float),
    Column("attempt", Integer, nullable=False),
    Column("job", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("number", name="run_failure_pkey"),
    Index("run_failure_at", "at"),
    Index("run_failure_job", "job"),
    Index("run_failure_tenant", "tenant", "number"),
)

Table(
    "alert_rule",
    metadata,
    Column("tenant", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "name", name="alert_rule_pkey"),
)

Table(
    "alert",
    metadata,
    Column("tenant", _NAME, nullable=False),
    Column("rule", _NAME, nullable=False),
    Column("subject", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "rule", "subject", name="alert_pkey"),
)

Table(
    "alert_silence",
    metadata,
    Column("id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("id", name="alert_silence_pkey"),
)

Table(
    "alert_notice",
    metadata,
    Column("id", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    # Null: nothing more is to be done about it.
    Column("next_at", BigInteger),
    Column("tries", Integer, nullable=False),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("id", name="alert_notice_pkey"),
    Index("alert_notice_next", "next_at"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
