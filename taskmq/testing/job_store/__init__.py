"""A model of job stores over dictionaries: the reference for random histories.

`JobModel` is synchronous and receives the time from its caller.
"""

from taskmq.testing.job_store.model import JobModel

__all__ = ["JobModel"]
