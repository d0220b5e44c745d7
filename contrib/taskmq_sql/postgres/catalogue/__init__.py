"""Definitions, what is known of tasks, and quotas: few rows, read and written by people and with submissions."""

from taskmq_sql.postgres.catalogue.definitions import PostgresDefinitions
from taskmq_sql.postgres.catalogue.quotas import KnownQuotas, admit_jobs, concern
from taskmq_sql.postgres.catalogue.tasks import PostgresTasks

__all__ = ["KnownQuotas", "PostgresDefinitions", "PostgresTasks", "admit_jobs", "concern"]
