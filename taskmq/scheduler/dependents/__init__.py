"""Release of jobs that depend on others, once those have ended."""

from taskmq.scheduler.dependents.releases import DependentReleases

__all__ = ["DependentReleases"]
