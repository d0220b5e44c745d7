from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore
from taskmq.testing.job_store_suite import JobStoreSuite
from taskmq_sql.sqlite import open_store


class TestSqlite(JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path}/jobs.db"

    def open_store(self) -> JobStore:
        return open_store(self.url, BrokerOptions())
