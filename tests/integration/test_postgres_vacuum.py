"""Vacuums of the tables of waiting jobs, which schedulers start themselves."""

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.runner import eventually
from taskmq_sql import open_job_store
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.upkeep.vacuum import Vacuum

pytestmark = pytest.mark.real_time

_COUNT = "select vacuum_count from pg_stat_user_tables where schemaname = 'taskmq' and relname = 'ready'"
_DEAD = "select n_dead_tup from pg_stat_user_tables where schemaname = 'taskmq' and relname = 'ready'"
_FILL = """
insert into taskmq.ready (queue, priority, tenant, due, id)
select 1, 1, 1, n, gen_random_uuid() from generate_series(1, $1) as n"""


async def test_dispatches_are_followed_by_a_vacuum_of_the_rows_they_deleted(job_store_url: str) -> None:
    store = open_job_store(job_store_url, BrokerOptions(name="vacuum"))
    observer = await asyncpg.connect(job_store_url)
    driver = JobDriver(store)

    async def dispatch_thousand() -> bool:
        await store.submit([await driver.new() for _ in range(1_000)])
        batch = await driver.dispatch()
        await store.dispatching.forget([batch.id])
        return bool(await observer.fetchval(_COUNT))

    try:
        # The server counts deleted rows with a delay of up to a second, so a first look may come too early.
        await eventually(dispatch_thousand, True, within=60)
    finally:
        await observer.close()
        await store.aclose()


async def test_a_table_whose_dead_rows_have_to_stay_is_vacuumed_once_they_double(job_store_url: str) -> None:
    database = Database(job_store_url, name="vacuum")
    vacuum = Vacuum(database.upkeep, between=1, many=100)
    old: Connection = await asyncpg.connect(job_store_url)

    async def delete(count: int) -> None:
        async def fill_and_delete(connection: Connection) -> None:
            await connection.execute(_FILL, count)
            await connection.execute("delete from taskmq.ready")
            # Otherwise the statistics follow within a second.
            await connection.execute("select pg_stat_force_next_flush()")

        before = await old.fetchval(_DEAD)
        await database.submits.run("statement", fill_and_delete)
        await eventually(lambda: _has_dead(database, before + count), True, within=10)

    async def vacuums() -> int:
        vacuum.count(1)
        await vacuum.run()
        return int(await database.reads.run("read", lambda connection: connection.fetchval(_COUNT)))

    try:
        await old.execute("begin isolation level repeatable read")
        await old.fetchval("select count(*) from taskmq.ready")
        await delete(99)
        assert await vacuums() == 0
        await delete(1)
        assert await vacuums() == 1
        await delete(99)
        assert await vacuums() == 1, "the old transaction still needs the first hundred"
        await delete(1)
        assert await vacuums() == 2
        await old.execute("commit")
        await delete(200)
        assert await vacuums() == 3
        assert await database.reads.run("read", lambda connection: connection.fetchval(_DEAD)) == 0
    finally:
        await old.close()
        await database.aclose()


async def _has_dead(database: Database, count: int) -> bool:
    dead = await database.reads.run("read", lambda connection: connection.fetchval(_DEAD))
    return int(dead) >= count
