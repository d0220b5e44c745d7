"""The tables of the first version."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    ARRAY,
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

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

_ID: Final[TypeEngine[Any]] = Uuid()
_IDS: Final[TypeEngine[Any]] = ARRAY(Uuid())
_TOKENS: Final[TypeEngine[Any]] = ARRAY(BigInteger())


def _vacuumed(scale: float = 0.02, threshold: int = 5000, **others: int) -> dict[str, float]:
    """Storage parameters of a table whose rows change or go all the time."""
    return {
        **others,
        "autovacuum_vacuum_scale_factor": scale,
        "autovacuum_vacuum_threshold": threshold,
        "autovacuum_vacuum_cost_delay": 0,
    }


def _job_columns() -> list[Column[object]]:
    """What a live job and an ended one have in common; wide columns first, so that nothing is padded."""
    return [
        Column("id", _ID, nullable=False),
        Column("due", BigInteger, nullable=False),
        Column("token", BigInteger, nullable=False, server_default=text("0")),
        Column("expires", BigInteger),
        Column("dispatched", BigInteger),
        Column("started", BigInteger),
        Column("tenant", Integer, nullable=False),
        Column("queue", Integer, nullable=False),
        Column("task", Integer, nullable=False),
        Column("worker", Integer),
        Column("version", Integer, nullable=False, server_default=text("1")),
        Column("attempt", Integer, nullable=False, server_default=text("1")),
        Column("priority", SmallInteger, nullable=False),
        Column("state", SmallInteger, nullable=False),
        Column("key", Text),
        Column("cancel_requested", Text),
        Column("error_type", Text),
        Column("error_message", Text),
        Column("traceback", Text),
        # None: it is in job_body.
        Column("body", LargeBinary),
    ]


Table(
    "job",
    metadata,
    *_job_columns(),
    PrimaryKeyConstraint("id", name="job_pkey"),
    postgresql_with=_vacuumed(fillfactor=70),
)

Table(
    "job_body",
    metadata,
    Column("id", _ID, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="job_body_pkey"),
)

Table(
    "job_detail",
    metadata,
    Column("id", _ID, nullable=False),
    Column("detail", Text, nullable=False),
    PrimaryKeyConstraint("id", name="job_detail_pkey"),
)

Table(
    "job_key",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("id", _ID, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant", "key", name="job_key_pkey"),
)

Table(
    "ready",
    metadata,
    Column("queue", Integer, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("tenant", Integer, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("id", _ID, nullable=False),
    PrimaryKeyConstraint("queue", "priority", "tenant", "due", "id", name="ready_pkey"),
    postgresql_with=_vacuumed(),
)

Table(
    "timer",
    metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("id", _ID, nullable=False),
    PrimaryKeyConstraint("shard", "due", "id", name="timer_pkey"),
    postgresql_with=_vacuumed(scale=0.01),
)

Table(
    "dispatch_batch",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    Column("slot", SmallInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("confirmed", Boolean, nullable=False, server_default=text("false")),
    Column("ids", _IDS, nullable=False),
    Column("tokens", _TOKENS, nullable=False),
    PrimaryKeyConstraint("id", name="dispatch_batch_pkey"),
    postgresql_with=_vacuumed(threshold=500),
)

Table(
    "job_history",
    metadata,
    *_job_columns(),
    # By the store's clock; `finished` is what the worker's says, which may be any instant.
    Column("ended", BigInteger, nullable=False),
    Column("finished", BigInteger, nullable=False),
    Column("content_type", Text),
    Column("result", LargeBinary),
    PrimaryKeyConstraint("id", "ended", name="job_history_pkey"),
    Index("job_history_tenant", "tenant", "id"),
    Index("job_history_task", "tenant", "task", "id"),
    Index(
        "job_history_task_unusual",
        "tenant",
        "task",
        "id",
        postgresql_where=text("state <> 5"),
    ),
    Index(
        "job_history_tenant_state",
        "tenant",
        "state",
        "id",
        postgresql_where=text("state <> 5"),
    ),
    Index(
        "job_history_state",
        "state",
        "id",
        postgresql_where=text("state <> 5"),
    ),
    postgresql_partition_by="RANGE (ended)",
)

Table(
    "attempt",
    metadata,
    Column("id", _ID, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("worker", Integer),
    Column("error_type", Text),
    Column("error_message", Text),
    Column("traceback", Text),
    PrimaryKeyConstraint("id", "attempt", "at", name="attempt_pkey"),
    postgresql_partition_by="RANGE (at)",
)

Table(
    "event",
    metadata,
    Column("id", _ID, nullable=False),
    Column("at", BigInteger, nullable=False),
    # Counted over all of them: the order of those of one moment. PostgreSQL takes it from a sequence, `event_number`.
    Column("number", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("actor", Text, nullable=False, server_default=text("''")),
    Column("note", Text, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("id", "at", "number", name="event_pkey"),
    postgresql_partition_by="RANGE (at)",
)


def _dictionary(name: str, *others: Column[int]) -> Table:
    return Table(
        name,
        metadata,
        Column("id", Integer, Identity(always=True), nullable=False),
        Column("name", Text, nullable=False),
        *others,
        PrimaryKeyConstraint("id", name=f"{name}_pkey"),
        UniqueConstraint("name", name=f"{name}_name_key"),
    )


_dictionary("tenant")
_dictionary("queue", Column("slot", SmallInteger, nullable=False))
_dictionary("task")
_dictionary("worker")

Table(
    "lease",
    metadata,
    Column("key", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    # None: it was released.
    Column("holder", Text),
    Column("expires", BigInteger, nullable=False),
    Column("note", Text, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("key", name="lease_pkey"),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_threshold": 100},
)

setting: Final = Table(
    "setting",
    metadata,
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("name", name="setting_pkey"),
)


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, checkfirst=False)
    connection.execute(setting.insert().values(name="slots", value="8"))
    op.execute("create sequence taskmq.event_number cache 1")
    # Ids and tokens are as good as random: to compress them is work for nothing.
    op.execute("alter table taskmq.dispatch_batch alter column ids set storage external")
    op.execute("alter table taskmq.dispatch_batch alter column tokens set storage external")
    # Without fractions that would be rounded up: an instant is never ahead of the clock.
    op.execute(
        "create function taskmq.now_ms() returns bigint language sql stable parallel safe as "
        "$$ select floor(extract(epoch from statement_timestamp()) * 1000)::bigint $$"
    )
