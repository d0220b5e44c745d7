"""The table `taskmq_once`, for `create_tables` and for migrations.

    CREATE TABLE taskmq_once (
        scope  VARCHAR(255) NOT NULL,
        key    VARCHAR(255) NOT NULL,
        job_id VARCHAR(255),
        done   TIMESTAMP WITH TIME ZONE NOT NULL,
        PRIMARY KEY (scope, key)
    );
    CREATE INDEX taskmq_once_done ON taskmq_once (done);

With Alembic: add `taskmq_sql.metadata` to `target_metadata`.
"""

from typing import Final

from sqlalchemy import Column, DateTime, Index, MetaData, String, Table

LIMIT: Final = 255

metadata: Final = MetaData()

once_keys: Final = Table(
    "taskmq_once",
    metadata,
    Column("scope", String(LIMIT), primary_key=True),
    Column("key", String(LIMIT), primary_key=True),
    Column("job_id", String(LIMIT)),
    Column("done", DateTime(timezone=True), nullable=False),
    Index("taskmq_once_done", "done"),
)
