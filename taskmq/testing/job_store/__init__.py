"""What a job store does to jobs, over dictionaries: the reference that random histories on a store are compared with.

`JobModel` is synchronous and takes its time from the caller.
"""

from taskmq.testing.job_store.model import JobModel

__all__ = ["JobModel"]
