import os

import pytest

from taskmq.contracts.jobs import JobStore
from taskmq.testing import FakeClock, JobModel, MemoryJobStore
from taskmq.testing.job_store_suite import JobStoreSuite, MovedClocks

# A campaign compares more of them: TASKMQ_TEST_HISTORIES=10000.
_HISTORIES = int(os.environ.get("TASKMQ_TEST_HISTORIES", "10"))


class TestMemory(MovedClocks, JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.empty()

    def empty(self) -> None:
        self.model, self.clock = JobModel(), FakeClock()

    def open_store(self) -> JobStore:
        return MemoryJobStore(self.model, clock=self.clock)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


def test_many_random_histories_do_what_the_model_does() -> None:
    for seed in range(_HISTORIES):
        suite = TestMemory()
        suite.empty()
        suite.seed = seed
        suite.test_random_histories_do_what_the_model_does()
