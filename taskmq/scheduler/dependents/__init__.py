"""Consequences of ends of jobs: dependents are released, and reactions called."""

from taskmq.scheduler.dependents.reaction_table import JobEnd, ReactionTable
from taskmq.scheduler.dependents.reactions import EndReactions
from taskmq.scheduler.dependents.releases import DependentReleases

__all__ = ["DependentReleases", "EndReactions", "JobEnd", "ReactionTable"]
