"""Jobs that wait for others, and are let go once those have ended."""

from taskmq.scheduler.dependents.releases import DependentReleases

__all__ = ["DependentReleases"]
