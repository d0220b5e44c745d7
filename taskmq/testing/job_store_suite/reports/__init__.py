"""Tests of workers' reports, and of forged ones."""

from taskmq.testing.job_store_suite.reports.batches import ReportBatches
from taskmq.testing.job_store_suite.reports.held_jobs import HeldJobCases
from taskmq.testing.job_store_suite.reports.interruptions import Interruptions
from taskmq.testing.job_store_suite.reports.journals import JournalCases
from taskmq.testing.job_store_suite.reports.outcomes import Reports
from taskmq.testing.job_store_suite.reports.proofs import ReportProofs
from taskmq.testing.job_store_suite.reports.restores import RestoredStores
from taskmq.testing.job_store_suite.reports.stale_reports import StaleReports

__all__ = [
    "HeldJobCases",
    "Interruptions",
    "JournalCases",
    "ReportBatches",
    "ReportProofs",
    "Reports",
    "RestoredStores",
    "StaleReports",
]
