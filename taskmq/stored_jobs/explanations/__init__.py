"""Explanations of waiting jobs: what keeps them from their runs, and when they will start."""

from taskmq.stored_jobs.explanations.explain import Explanation, explain_job

__all__ = ["Explanation", "explain_job"]
