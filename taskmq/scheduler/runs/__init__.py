"""Runs of workflows, which schedulers advance: their steps become jobs.

advances     the service that advances pending runs and fires their timers
step_jobs    jobs of steps
"""

from taskmq.scheduler.runs.advances import RunAdvances
from taskmq.scheduler.runs.step_jobs import StepJobs

__all__ = ["RunAdvances", "StepJobs"]
