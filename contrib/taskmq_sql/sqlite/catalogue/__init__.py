"""Definitions, what is known of tasks, and quotas: few rows, read and written by people and with submissions."""

from taskmq_sql.sqlite.catalogue.definitions import SqliteDefinitions
from taskmq_sql.sqlite.catalogue.quotas import Room, limit, quotas, usage_of
from taskmq_sql.sqlite.catalogue.tasks import SqliteTasks

__all__ = ["Room", "SqliteDefinitions", "SqliteTasks", "limit", "quotas", "usage_of"]
