"""Definitions, and what is known of tasks: few rows, read and written by people and with every submission by name."""

from taskmq_sql.postgres.catalogue.definitions import PostgresDefinitions
from taskmq_sql.postgres.catalogue.tasks import PostgresTasks

__all__ = ["PostgresDefinitions", "PostgresTasks"]
