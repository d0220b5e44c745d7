"""What the parts of the suite have in common: the adapter's part, and how its stores are used."""

from taskmq.contracts.jobs import JobStore
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.runner import Suite

__all__ = ["JobStoreCase"]


class JobStoreCase(Suite):
    """One test of the suite at work, on a database of its own."""

    def open_store(self) -> JobStore:
        """A new store on the test's database, not yet connected. Called inside the running loop.

        The database has no jobs when a test begins; several calls in one test give stores on the same one.
        """
        raise NotImplementedError

    def store(self) -> JobStore:
        """A store that is closed at the end of the test."""
        store = self.open_store()
        self.opened.push_async_callback(store.aclose)
        return store

    def driver(self) -> JobDriver:
        """A store that is closed at the end of the test, and what the tests do with it."""
        return JobDriver(self.store())
