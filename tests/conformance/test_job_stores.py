from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore
from taskmq.testing import FakeClock, JobModel, MemoryJobStore
from taskmq.testing.job_store_suite import JobStoreSuite, MovedClocks
from taskmq_sql import open_job_store


class TestMemory(JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.model, self.clock = JobModel(), FakeClock()

    def open_store(self) -> JobStore:
        return MemoryJobStore(self.model, clock=self.clock)


class TestPostgreSQL(JobStoreSuite):
    # Each step asks the server several times; on a busy machine more of them do not fit into a test's time.
    steps = 100

    @pytest.fixture(autouse=True)
    def _database(self, job_store_url: str) -> None:
        self.url = job_store_url

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))


class TestSqlite(JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path}/jobs.db"

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))


class TestMemoryAsTimePasses(MovedClocks):
    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.model, self.clock = JobModel(), FakeClock()

    def open_store(self) -> JobStore:
        return MemoryJobStore(self.model, clock=self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestSqliteAsTimePasses(MovedClocks):
    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> None:
        self.url, self.clock = f"sqlite:///{tmp_path}/jobs.db", FakeClock()

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite", clock=self.clock))

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
