"""Tests of unique keys."""

from taskmq.testing.job_store_suite.uniqueness.races import UniqueRaces
from taskmq.testing.job_store_suite.uniqueness.submissions import UniqueJobs

__all__ = ["UniqueJobs", "UniqueRaces"]
