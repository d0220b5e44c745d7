"""Tests of the run history of a job store."""

from taskmq.testing.job_store_suite.history.alerts import AlertCases
from taskmq.testing.job_store_suite.history.depths import DepthCases
from taskmq.testing.job_store_suite.history.failures import FailureGroupCases
from taskmq.testing.job_store_suite.history.logs import LogCases
from taskmq.testing.job_store_suite.history.rollups import RollupCases
from taskmq.testing.job_store_suite.history.sent_jobs import SentJobCases
from taskmq.testing.job_store_suite.history.versions import VersionCases

__all__ = ["HistoryCases"]


class HistoryCases(LogCases, RollupCases, DepthCases, VersionCases, SentJobCases, FailureGroupCases, AlertCases):
    """Every guarantee of `taskmq.contracts.history`."""
