"""Lists of jobs: a filter as index scans over live and ended jobs, and pages of their results."""

from taskmq_sql.postgres.lists.scans import Known, Scan, Statement, first_id, page_of, scans

__all__ = ["Known", "Scan", "Statement", "first_id", "page_of", "scans"]
