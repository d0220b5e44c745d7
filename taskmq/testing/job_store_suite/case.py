"""Bases of the tests in the job store suite."""

from taskmq.contracts.jobs import JobStore
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.runner import Suite


class JobStoreCase(Suite):
    """Base of a test with its own database."""

    def open_store(self) -> JobStore:
        """Return a new store on the test's database, not yet connected. Called inside the running loop.

        The database has no jobs when a test begins; several calls in one test return stores on the same one.
        """
        raise NotImplementedError

    def store(self) -> JobStore:
        """Return a store that is closed at the end of the test."""
        store = self.open_store()
        self.opened.push_async_callback(store.aclose)
        return store

    def driver(self) -> JobDriver:
        """Return a driver of a store that is closed at the end of the test."""
        return JobDriver(self.store())


class MovedClockCase(JobStoreCase):
    """Base of a test for stores whose clock can be moved."""

    async def advance(self, seconds: float) -> None:
        """Advance the store's clock."""
        raise NotImplementedError
