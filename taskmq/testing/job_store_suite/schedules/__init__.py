"""Tests of schedules: stored, changed by compare-and-set, found when due, and fired."""

from taskmq.testing.job_store_suite.schedules.firings import ScheduleFirings
from taskmq.testing.job_store_suite.schedules.rows import ScheduleRows

__all__ = ["ScheduleFirings", "ScheduleRows"]
