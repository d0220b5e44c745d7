"""Parts shared by the tests of run history."""

from taskmq.contracts.history import HistoryStore, Remembering
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import JobDriver


def history_of(driver: JobDriver) -> HistoryStore:
    """Return the run history of the driver's store."""
    store = driver.store
    assert isinstance(store, Remembering)
    return store.history


class HistoryCase(JobStoreCase):
    """Base of a test of run history."""

    def history(self) -> HistoryStore:
        """Return the run history of a store that is closed at the end of the test."""
        return history_of(self.driver())
