"""The job store's contract over dictionaries: the reference that stores are compared with, and a store for tests.

`JobModel` is synchronous and takes its time from the caller; `MemoryJobStore` puts it behind the contract.
"""

from taskmq.testing.job_store.memory import MemoryJobStore
from taskmq.testing.job_store.model import JobModel

__all__ = ["JobModel", "MemoryJobStore"]
