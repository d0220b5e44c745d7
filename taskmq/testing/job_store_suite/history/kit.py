"""What the tests of what is remembered have in common."""

from taskmq.contracts.history import HistoryStore, Remembering
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import JobDriver

__all__ = ["HistoryCase", "history_of"]


def history_of(driver: JobDriver) -> HistoryStore:
    """What the driver's store remembers."""
    store = driver.store
    assert isinstance(store, Remembering)
    return store.history


class HistoryCase(JobStoreCase):
    """One test at work."""

    def history(self) -> HistoryStore:
        """What a store remembers that is closed at the end of the test."""
        return history_of(self.driver())
