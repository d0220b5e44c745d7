import pytest

from taskmq.contracts.jobs import JobStore
from taskmq.testing import FakeClock, JobModel, MemoryJobStore
from taskmq.testing.job_store_suite import JobStoreSuite


class TestMemory(JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.model, self.clock = JobModel(), FakeClock()

    def open_store(self) -> JobStore:
        return MemoryJobStore(self.model, clock=self.clock)
