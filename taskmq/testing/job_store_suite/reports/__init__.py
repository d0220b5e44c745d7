"""What workers report, and what others who can publish pretend to."""

from taskmq.testing.job_store_suite.reports.outcomes import Reports
from taskmq.testing.job_store_suite.reports.proofs import ReportProofs
from taskmq.testing.job_store_suite.reports.restores import RestoredStores

__all__ = ["ReportProofs", "Reports", "RestoredStores"]
