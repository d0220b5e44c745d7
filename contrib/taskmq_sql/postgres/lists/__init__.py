"""Lists of jobs: a filter as walks down the ids of live and ended jobs, in text, and the pages that come of them."""

from taskmq_sql.postgres.lists.scans import Known, Scan, Statement, first_id, page_of, scans

__all__ = ["Known", "Scan", "Statement", "first_id", "page_of", "scans"]
