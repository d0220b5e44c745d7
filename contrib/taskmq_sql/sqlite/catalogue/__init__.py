"""Definitions, and what is known of tasks: few rows, read and written by people and with every submission by name."""

from taskmq_sql.sqlite.catalogue.definitions import SqliteDefinitions
from taskmq_sql.sqlite.catalogue.tasks import SqliteTasks

__all__ = ["SqliteDefinitions", "SqliteTasks"]
