"""Definitions and registered tasks: few rows, edited by people and read by name with every submission."""

from taskmq_sql.catalogue.definitions import SqlDefinitions
from taskmq_sql.catalogue.tasks import SqlTasks

__all__ = ["SqlDefinitions", "SqlTasks"]
