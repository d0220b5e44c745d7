"""Tests of jobs that wait for other jobs."""

from taskmq.testing.job_store_suite.dependencies.ends import DependencyEnds
from taskmq.testing.job_store_suite.dependencies.races import DependencyRaces
from taskmq.testing.job_store_suite.dependencies.retries import DependencyRetries
from taskmq.testing.job_store_suite.dependencies.submissions import WaitingJobs

__all__ = ["DependencyEnds", "DependencyRaces", "DependencyRetries", "WaitingJobs"]
