"""Jobs of runs in PostgreSQL; `taskmq_sql.runs` has the rest."""

from taskmq_sql.postgres.runs.step_jobs import ANSWERS

__all__ = ["ANSWERS"]
