"""Schedules in PostgreSQL.

A turn of many schedules is one transaction of few statements: the fence, the rows that were as they were taken to be,
their places among what is due, their occurrences, and the jobs of those that are new.
"""

from taskmq_sql.postgres.schedules.store import PostgresSchedules

__all__ = ["PostgresSchedules"]
