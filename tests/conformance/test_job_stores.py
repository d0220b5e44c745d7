import os
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore
from taskmq.testing import FakeClock
from taskmq.testing.job_store_suite import JobStoreSuite, JobTransactions, MovedClocks, OldRuns, RestoredStores
from taskmq.testing.job_store_suite.bulks import BulkCases
from taskmq.testing.job_store_suite.catalogue import Definitions, RegisteredTasks
from taskmq.testing.job_store_suite.history import HistoryCases
from taskmq.testing.job_store_suite.identity import IdentityCases
from taskmq.testing.job_store_suite.nodes import AllocationCases, NodeCases
from taskmq.testing.job_store_suite.runs.history import RandomRuns
from taskmq_sql import open_job_store
from tests.conformance.night import at_night, names_of
from tests.servers import PgBouncer, PostgreSQL
from tests.servers.reused_tables import ReusedTables
from tests.unit.app_kit import new_file_store

_S = TypeVar("_S", bound=RandomRuns)

_SHARED_AREAS = (AllocationCases, BulkCases, Definitions, HistoryCases, IdentityCases, NodeCases, RegisteredTasks)
# docs/proofs.md names it.
_STAY = "test_repeated_and_concurrent_reports_leave_one_record_of_each_run"


@pytest.fixture(scope="session")
def reused_tables(postgres_server: PostgreSQL, job_store_template: str) -> Iterator[ReusedTables]:
    url = postgres_server.create_database(template=job_store_template)
    with ReusedTables(url, "taskmq") as tables:
        yield tables
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def reused_connections(reused_tables: ReusedTables) -> Iterator[PgBouncer]:
    # A new connection reads the catalogue of all partitions again, which costs more than most tests.
    with PgBouncer(reused_tables.url, mode="session", size=100) as pooler:
        yield pooler


# Both kinds of database run the same code in these areas, which TestSqlite proves in the gate. Areas with statements
# for PostgreSQL stay in it.
@at_night(pytest.mark.nightly("tests/conformance/test_job_stores.py"), *names_of(*_SHARED_AREAS, but=_STAY))
class TestPostgreSQL(JobTransactions, JobStoreSuite):
    # Each step calls the server several times; on a busy machine more of them do not fit into a test's time limit.
    steps = 100

    @pytest.fixture(autouse=True)
    def _database(self, reused_tables: ReusedTables, reused_connections: PgBouncer) -> Iterator[None]:
        self.url = reused_connections.url
        yield
        reused_tables.clear()

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))

    @asynccontextmanager
    async def transaction(self, store: JobStore) -> AsyncIterator[Any]:
        del store
        connection: Any = await asyncpg.connect(self.url)  # pyright: ignore[reportUnknownMemberType]
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()


class TestSqlite(JobTransactions, JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> None:
        self.path = tmp_path / "jobs.db"
        self.url = new_file_store(tmp_path)

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))

    @asynccontextmanager
    async def transaction(self, store: JobStore) -> AsyncIterator[Any]:
        # A new file has its tables then.
        await store.check()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


# The tables and the code are those of a file.
@pytest.mark.nightly("tests/conformance/test_job_stores.py")
class TestSqliteInMemory(JobTransactions, JobStoreSuite):
    @pytest.fixture(autouse=True)
    def _database(self) -> Iterator[None]:
        self.url, self.clock = f"sqlite://:memory:{uuid4().hex}", FakeClock()
        # It exists as long as it is open.
        self.kept = self.open_store()
        yield
        del self.kept

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite", clock=self.clock))

    @asynccontextmanager
    async def transaction(self, store: JobStore) -> AsyncIterator[Any]:
        del store
        engine = create_async_engine("sqlite+aiosqlite://")
        async with AsyncSession(engine) as session, session.begin():
            yield session
        await engine.dispose()


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_random_histories_without_servers_match_the_model(tmp_path: Path) -> None:
    """$TASKMQ_TEST_JOB_HISTORIES: number of histories of 250 submits, changes, dispatches, reports and deaths."""
    for seed in range(int(os.environ.get("TASKMQ_TEST_JOB_HISTORIES", "20"))):
        suite = TestSqlite()
        suite.seed = seed
        suite.path = tmp_path / f"{seed}.db"
        suite.url = f"sqlite:///{suite.path}"
        suite.test_random_histories_match_the_model()
        for path in tmp_path.glob(f"{seed}.db*"):
            path.unlink()


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_random_runs_without_servers_match_the_model(tmp_path: Path) -> None:
    """Random graphs with cut calls and several schedulers; `_random_runs` has the variables."""
    for suite in _random_runs(TestSqlite()):
        suite.url = new_file_store(tmp_path)
        suite.test_random_runs_end_as_in_the_model()
        _delete_store(tmp_path)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_random_runs_with_quotas_without_servers_match_the_model(tmp_path: Path) -> None:
    """Random graphs whose quota submissions fill; `_random_runs` has the variables."""
    for suite in _random_runs(TestSqliteAsTimePasses()):
        suite.url, suite.clock = new_file_store(tmp_path), FakeClock()
        suite.test_random_runs_with_a_quota_that_submissions_fill_end_as_in_the_model()
        _delete_store(tmp_path)


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_random_runs_on_postgresql_match_the_model(reused_tables: ReusedTables) -> None:
    """Random graphs with cut calls and several schedulers; `_random_runs` has the variables."""
    for suite in _random_runs(TestPostgreSQL()):
        suite.url = reused_tables.url
        suite.test_random_runs_end_as_in_the_model()
        reused_tables.clear()


def _delete_store(folder: Path) -> None:
    for path in folder.glob("jobs.db*"):
        path.unlink()


def _random_runs(suite: _S) -> Iterator[_S]:
    """Yield the suite with one graph after the other; print the duration of each, and where transitions were cut off.

    $TASKMQ_TEST_RUNS: number of graphs; $TASKMQ_TEST_RUNS_FROM: seed of the first one;
    $TASKMQ_TEST_RUN_STEPS: maximum of steps in one.
    """
    first = int(os.environ.get("TASKMQ_TEST_RUNS_FROM", "0"))
    # Large graphs take minutes on a busy machine.
    suite.deadline = 3600
    suite.graphs, suite.largest = 1, int(os.environ.get("TASKMQ_TEST_RUN_STEPS", "60"))
    cuts = Counter[int]()
    for suite.first_graph in range(first, first + int(os.environ.get("TASKMQ_TEST_RUNS", "20"))):
        began = time.monotonic()
        yield suite
        cuts += suite.cuts
        print(f"graph {suite.first_graph}: {time.monotonic() - began:.1f} s; cut off at: {sorted(cuts.items())}")


class TestSqliteAsTimePasses(MovedClocks):
    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> None:
        self.url, self.clock = new_file_store(tmp_path), FakeClock()

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite", clock=self.clock))

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)


class TestPostgreSQLAsTimePasses(OldRuns):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: PostgreSQL, job_store_url: str) -> None:
        self.server, self.url, self.ahead = postgres_server, job_store_url, 0.0

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))

    async def advance(self, seconds: float) -> None:
        self.ahead += seconds
        now = f"select floor((extract(epoch from clock_timestamp()) + {self.ahead}) * 1000)::bigint"
        self.server.sql(
            f"create or replace function taskmq.now_ms() returns bigint language sql as $${now}$$", url=self.url
        )


class TestSqliteRestored(RestoredStores):
    @pytest.fixture(autouse=True)
    def _database(self, tmp_path: Path) -> None:
        self.path, self.copy = tmp_path / "jobs.db", tmp_path / "copy.db"

    def open_store(self) -> JobStore:
        return open_job_store(f"sqlite:///{self.path}", BrokerOptions(name="suite"))

    async def back_up(self) -> None:
        with closing(sqlite3.connect(self.path)) as there, closing(sqlite3.connect(self.copy)) as here:
            there.backup(here)

    async def restore(self) -> None:
        self.path = self.copy


# The copy differs, the code that finds the forgotten dispatches does not.
@pytest.mark.nightly("tests/conformance/test_job_stores.py")
class TestPostgreSQLRestored(RestoredStores):
    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: PostgreSQL, job_store_url: str) -> Iterator[None]:
        self.server, self.url = postgres_server, job_store_url
        self.copy = postgres_server.create_database()
        yield
        postgres_server.drop_database(self.copy)

    def open_store(self) -> JobStore:
        return open_job_store(self.url, BrokerOptions(name="suite"))

    async def back_up(self) -> None:
        there, here = (urlsplit(url).path.removeprefix("/") for url in (self.url, self.copy))
        self.server.drop_database(self.copy)
        self.server.sql(f'create database "{here}" template "{there}"')

    async def restore(self) -> None:
        self.url = self.copy
