"""Alembic's entry point: run the migrations on the connection that `taskmq_sql.migrations` passes."""

from typing import cast

from alembic import context
from sqlalchemy import Connection

from taskmq_sql.jobs.tables import SCHEMA, VERSION_TABLE

connection = cast("Connection", context.config.attributes["connection"])
context.configure(
    connection=connection,
    version_table=VERSION_TABLE,
    version_table_schema=SCHEMA,
)
with context.begin_transaction():
    context.run_migrations()
