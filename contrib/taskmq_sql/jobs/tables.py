"""The tables of the job store, as SQLAlchemy Core describes them; migrations make them.

    job            live jobs: the one row that decides. No index but its key, so that every change is made in place
    job_body       bodies beyond `LONGEST_BODY`
    job_detail     what few jobs have, as JSON
    job_key        the ids that submitters chose
    quota_usage    what was submitted of late by tenants and users that have quotas
    dependency     what waiting jobs wait for, as far as it has not come; a job's `has_dependents` says that others do
    upstream_end   ends of such jobs, until those that waited have heard of them
    unique_key     the keys of which one job is to be the only one, and who has them
    ready          one narrow row per queued job
    gated          one row per queued job that waits behind a gate, and has none in `ready`
    timer          one narrow row per scheduled or retrying job
    dispatch_batch outbox and list of what is under way
    job_history    ended jobs, by day of their end
    attempt        attempts that did not end their job, by day
    event          what is no ordinary step, by day
    tenant, queue, task, worker   names, and the integers that stand for them
    schedule       definitions of schedules, and records of what has become of their occurrences
    schedule_due   one narrow row per schedule that has to be looked at
    occurrence     what has come of which nominal instant
    bulk           what is done to many jobs, and how far it is
    lease          who holds a slot or a duty; its `epoch` only grows
    definition     templates of jobs by tenant and name: which version is the last, and whether it was deleted
    definition_version  all their versions
    task_registration   the forms that tasks have had, as workers and schedulers have reported them
    node           machines, and what they say of themselves
    allocation     what of a node is taken, or was; one of a job counts while the job has the token that it names
    setting        the number of slots, and which older code may use these tables

Those of who may do what are in `taskmq_sql.identity`, and of what is remembered of runs in `taskmq_sql.history`:
their statements are text on both databases.

Instants are ms since the epoch: as long as a timestamp, exact, and the same on every database. Ids of jobs are UUIDs
of version 7, so the order of ids is that of submissions, and the time of submission is in the id. A SQLite file has
tables of its own, `taskmq_sql.sqlite.file.schema`.
"""

from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Double,
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

__all__ = [
    "BY_DAY",
    "HEAD",
    "LONGEST_BODY",
    "SCHEMA",
    "VERSION_TABLE",
    "allocation",
    "attempt",
    "bulk",
    "definition",
    "definition_version",
    "dependency",
    "dispatch_batch",
    "event",
    "gated",
    "job",
    "job_body",
    "job_detail",
    "job_history",
    "job_key",
    "lease",
    "metadata",
    "node",
    "occurrence",
    "queue",
    "ready",
    "schedule",
    "schedule_due",
    "setting",
    "task",
    "task_registration",
    "tenant",
    "timer",
    "unique_key",
    "upstream_end",
    "worker",
]

HEAD: Final = "0021"
"""The version that this code works with; `store check` compares it with that of the tables."""
VERSION_TABLE: Final = "schema_version"
SCHEMA: Final = "taskmq"
LONGEST_BODY: Final = 1536
"""Bytes of a body that is kept in the job's row."""

metadata: Final = MetaData(schema=SCHEMA)

_ID: Final[TypeEngine[Any]] = Uuid()
_IDS: Final[TypeEngine[Any]] = ARRAY(Uuid())
_TOKENS: Final[TypeEngine[Any]] = ARRAY(BigInteger())
# In the order of code points, as the other stores have it.
_NAME: Final[TypeEngine[Any]] = Text(collation="C")


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
        # When it was to run at first; None: `due`. Null for nearly all.
        Column("scheduled", BigInteger),
        # Of the first run; `started` is that of the last one.
        Column("first_started", BigInteger),
    ]


job: Final = Table(
    "job",
    metadata,
    *_job_columns(),
    # Null for nearly all: it takes no room, and an end need not look for those that wait for it.
    Column("has_dependents", Boolean),
    # How many outages have interrupted runs of the attempt; null for none.
    Column("outages", Integer),
    PrimaryKeyConstraint("id", name="job_pkey"),
    postgresql_with=_vacuumed(fillfactor=70),
)

job_body: Final = Table(
    "job_body",
    metadata,
    Column("id", _ID, nullable=False),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("id", name="job_body_pkey"),
)

job_detail: Final = Table(
    "job_detail",
    metadata,
    Column("id", _ID, nullable=False),
    Column("detail", Text, nullable=False),
    PrimaryKeyConstraint("id", name="job_detail_pkey"),
)

job_key: Final = Table(
    "job_key",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("id", _ID, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant", "key", name="job_key_pkey"),
)

unique_key: Final = Table(
    "unique_key",
    metadata,
    Column("name", Text, nullable=False),
    # None: of a submission that came to nothing.
    Column("id", _ID),
    # When it is free in any case.
    Column("until", BigInteger, nullable=False),
    PrimaryKeyConstraint("name", name="unique_key_pkey"),
    postgresql_with=_vacuumed(fillfactor=70),
)

quota_usage: Final = Table(
    "quota_usage",
    metadata,
    Column("name", Text, nullable=False),
    # Days since the epoch, of which the next two are.
    Column("day", Integer, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    # Until when the rate is used up.
    Column("used_until", Double, nullable=False),
    PrimaryKeyConstraint("name", name="quota_usage_pkey"),
    postgresql_with=_vacuumed(fillfactor=50),
)

ready: Final = Table(
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

gated: Final = Table(
    "gated",
    metadata,
    Column("id", _ID, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("queue", Integer, nullable=False),
    Column("tenant", Integer, nullable=False),
    Column("slot", SmallInteger, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("gate", Text(collation="C"), nullable=False),
    PrimaryKeyConstraint("id", name="gated_pkey"),
    Index("gated_order", "slot", "gate", text("priority desc"), "due", "id"),
    Index("gated_tenant", "tenant"),
    postgresql_with=_vacuumed(),
)

timer: Final = Table(
    "timer",
    metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("id", _ID, nullable=False),
    PrimaryKeyConstraint("shard", "due", "id", name="timer_pkey"),
    postgresql_with=_vacuumed(scale=0.01),
)

dispatch_batch: Final = Table(
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

dependency: Final = Table(
    "dependency",
    metadata,
    Column("upstream", _ID, nullable=False),
    Column("dependent", _ID, nullable=False),
    Column("condition", SmallInteger, nullable=False),
    PrimaryKeyConstraint("upstream", "dependent", name="dependency_pkey"),
    Index("dependency_dependent", "dependent", "upstream"),
    postgresql_with=_vacuumed(),
)

upstream_end: Final = Table(
    "upstream_end",
    metadata,
    # In this order they are settled.
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("id", _ID, nullable=False),
    Column("state", SmallInteger, nullable=False),
    PrimaryKeyConstraint("number", name="upstream_end_pkey"),
    postgresql_with=_vacuumed(threshold=500),
)

job_history: Final = Table(
    "job_history",
    metadata,
    *_job_columns(),
    # By the store's clock; `finished` is what the worker's says, which may be any instant.
    Column("ended", BigInteger, nullable=False),
    Column("finished", BigInteger, nullable=False),
    Column("content_type", Text),
    Column("result", LargeBinary),
    # The job that repeats it.
    Column("retried_as", _ID),
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

attempt: Final = Table(
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

event: Final = Table(
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
    # Of the run that was interrupted.
    Column("started", BigInteger),
    PrimaryKeyConstraint("id", "at", "number", name="event_pkey"),
    Index("event_at", "at"),
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


tenant: Final = _dictionary("tenant")
queue: Final = _dictionary("queue", Column("slot", SmallInteger, nullable=False))
task: Final = _dictionary("task")
worker: Final = _dictionary("worker")

schedule: Final = Table(
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

schedule_due: Final = Table(
    "schedule_due",
    metadata,
    Column("shard", SmallInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("id", BigInteger, nullable=False),
    PrimaryKeyConstraint("shard", "next_at", "id", name="schedule_due_pkey"),
    postgresql_with=_vacuumed(scale=0.01),
)

occurrence: Final = Table(
    "occurrence",
    metadata,
    Column("schedule", BigInteger, nullable=False),
    Column("instant", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("job", _ID),
    Column("run", Text, nullable=False, server_default=text("''")),
    Column("kind", Text, nullable=False),
    PrimaryKeyConstraint("schedule", "instant", "run", name="occurrence_pkey"),
    # They come in the order of their times.
    Index("occurrence_at", "at", postgresql_using="brin"),
)

lease: Final = Table(
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

definition: Final = Table(
    "definition",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
    PrimaryKeyConstraint("tenant", "name", name="definition_pkey"),
)

definition_version: Final = Table(
    "definition_version",
    metadata,
    Column("tenant", Integer, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("version", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    # JSON, in one form: the same content has the same text.
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("tenant", "name", "version", name="definition_version_pkey"),
)

task_registration: Final = Table(
    "task_registration",
    metadata,
    Column("task", _NAME, nullable=False),
    Column("origin", Text, nullable=False),
    # Of the content: one row for each form that the task has had.
    Column("digest", LargeBinary, nullable=False),
    Column("content", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("first_told", BigInteger, nullable=False),
    Column("last_told", BigInteger, nullable=False),
    PrimaryKeyConstraint("task", "origin", "digest", name="task_registration_pkey"),
)

node: Final = Table(
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
    postgresql_with=_vacuumed(fillfactor=50, threshold=500),
)

bulk: Final = Table(
    "bulk",
    metadata,
    Column("id", _NAME, nullable=False),
    # Null: everybody's.
    Column("tenant", Text),
    Column("due", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("version", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    # Of the request, with the tenant: what comes again under it is the same bulk.
    Column("key", Text),
    PrimaryKeyConstraint("id", name="bulk_pkey"),
    Index("bulk_open", "due", "id", postgresql_where=text("ended is null")),
    Index("bulk_tenant", "tenant", "id"),
    Index("bulk_key", "key", unique=True),
)

allocation: Final = Table(
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

setting: Final = Table(
    "setting",
    metadata,
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("name", name="setting_pkey"),
)

report_key: Final = Table(
    "report_key",
    metadata,
    # The newest key has the highest.
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("id", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    PrimaryKeyConstraint("number", name="report_key_pkey"),
    UniqueConstraint("id", name="report_key_id_key"),
)

BY_DAY: Final = {"job_history": "ended", "attempt": "at", "event": "at"}
"""Tables that are divided by day, and the column that says which."""
