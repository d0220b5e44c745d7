"""A model of job stores over dictionaries: the reference with which random histories are compared.

`JobModel` is synchronous and takes its time from the caller.
"""

from taskmq.testing.job_store.model import JobModel

__all__ = ["JobModel"]
