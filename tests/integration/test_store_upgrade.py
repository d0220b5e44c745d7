"""Stores of the first version, which are upgraded to this one with what is in them."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import Upgradable
from taskmq.errors import StoreMismatch
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.job_store_suite.uniqueness.submissions import unique
from taskmq_sql import open_job_store
from taskmq_sql.jobs.tables import HEAD
from taskmq_sql.migrations import current, upgrade
from taskmq_sql.sqlite.file import schema
from tests.servers.postgres import PostgreSQL


@pytest.fixture
def empty_database(postgres_server: PostgreSQL) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


async def _is_brought_up(url: str) -> None:
    store = open_job_store(url, BrokerOptions(name="upgrade"))
    assert isinstance(store, Upgradable)
    driver = JobDriver(store)
    with pytest.raises(StoreMismatch, match="run `taskmq store upgrade`"):
        await store.check()

    await store.upgrade()
    await store.upgrade()

    await store.check()
    job = await driver.submit(unique=unique())
    assert (await driver.submitted(unique=unique())).id == job.id
    await store.aclose()


def test_tables_of_the_first_revision_on_postgresql(empty_database: str) -> None:
    async def main() -> None:
        await upgrade(empty_database, "0001")
        assert await current(empty_database) == "0001"

        await _is_brought_up(empty_database)

        assert await current(empty_database) == HEAD

    asyncio.run(main())


def test_a_file_of_the_first_version(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with pytest.MonkeyPatch.context() as patch:
        # As the first version made it.
        patch.setattr(schema, "_STEPS", vars(schema)["_STEPS"][:1])
        patch.setattr(schema, "SCHEMA_VERSION", 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            schema.create(connection)
            assert schema.current(connection) == 1

    asyncio.run(_is_brought_up(f"sqlite:///{path}"))

    with closing(sqlite3.connect(path)) as connection:
        assert schema.current(connection) == schema.SCHEMA_VERSION > 1
