"""Ended jobs are deleted when they are old enough, by the scheduler's upkeep and on request of an operator."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq import TaskMQ
from taskmq.contracts.jobs import Catalogued, Prunable
from taskmq.model.jobs.registrations import TaskRegistration
from taskmq.model.units import DAY_MS
from taskmq.stored_jobs import Jobs
from taskmq.testing.runner import eventually
from taskmq_sql.jobs.partitions import day_of, partition_statements
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.upkeep.days import drop_day
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


def _shop(store: str) -> TaskMQ:
    app = TaskMQ(new_url(), store=store)

    @app.task(name="report")
    async def report(month: str) -> None: ...

    return app


async def _end_job(jobs: Jobs, key: str) -> str:
    """Return the store's own id of a cancelled job."""
    # The day of one of them has no data beside jobs.
    await jobs.asubmit("report", key, job_id=key, delay="1h", description="" if key == "old" else key)
    return (await jobs.acancel(key)).id


async def _prune(app: TaskMQ, keep_days: int) -> None:
    store = app.sessions.store()
    assert isinstance(store, Prunable)
    await store.prune(keep_days=keep_days)


async def _check(app: TaskMQ, age: Callable[[str, int], Awaitable[None]]) -> None:
    """Check the deletion; `age` moves the end of a job that many days into the past."""
    async with app:
        await app.jobs.asubmit("report", "live", job_id="live", delay="1h")
        ids = {key: await _end_job(app.jobs, key) for key in ("old", "older", "new")}
        await age(ids["old"], 10)
        await age(ids["older"], 40)

        async def ids_left() -> set[str | None]:
            return {record.key for record in (await app.sessions.store().list_jobs()).jobs}

        assert await ids_left() == {"live", "old", "older", "new"}
        await app.sessions.store().dispatching.maintain()
        assert await ids_left() == {"live", "old", "new"}
        await _prune(app, 11)
        assert await ids_left() == {"live", "old", "new"}
        for _ in range(2):
            await _prune(app, 7)
            assert await ids_left() == {"live", "new"}
        # Its id may be used again.
        await app.jobs.asubmit("report", "other", job_id="old", delay="1h")
        assert (await app.jobs.aget("old")).id != ids["old"]


def test_a_database_deletes_whole_days(job_store_url: str) -> None:
    async def age(job_id: str, days: int) -> None:
        connection: Any = await asyncpg.connect(job_store_url)
        now = await connection.fetchval("select taskmq.now_ms()")
        for statements in partition_statements(now - days * DAY_MS).values():
            for statement in statements:
                await connection.execute(statement)
        await connection.execute(
            "update taskmq.job_history set ended = ended - $2, finished = finished - $2 where id = $1::uuid",
            job_id,
            days * DAY_MS,
        )
        await connection.close()

    async def count_kept() -> int:
        connection: Any = await asyncpg.connect(job_store_url)
        count = await connection.fetchval("select count(*) from taskmq.job_detail")
        await connection.close()
        return int(count)

    asyncio.run(_check(_shop(job_store_url), age))

    assert asyncio.run(count_kept()) == 1


async def test_a_day_that_was_detached_and_not_dropped_is_dropped_next_time(job_store_url: str) -> None:
    """The leftovers of a scheduler killed between the two."""

    connection: Any = await asyncpg.connect(job_store_url)
    now = await connection.fetchval("select taskmq.now_ms()")
    tables: dict[str, str] = {}
    for days in (10, 40):
        for name, statements in partition_statements(now - days * DAY_MS).items():
            if name.startswith("job_history"):
                await connection.execute(statements[0])
                tables[name] = "old" if day_of(name) < now // DAY_MS - 30 else "kept"
    await connection.execute("create table taskmq.job_history_of_mine (id int)")

    async with _shop(job_store_url) as app:
        await app.sessions.store().dispatching.maintain()

    rows = await connection.fetch(
        "select relname::text from pg_class where relkind = 'r' and relname ~ '^job_history_' and not relispartition"
    )
    await connection.close()
    expected = {name for name, age in tables.items() if age == "kept"}
    assert {row[0] for row in rows} == expected | {"job_history_of_mine"}
    assert "old" in tables.values()


class _Old13:
    """A connection to a server that claims to be PostgreSQL 13."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.refused = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetchval(self, query: str, *args: object) -> Any:
        if query == "show server_version_num":
            return "130010"
        return await self._connection.fetchval(query, *args)

    async def execute(self, query: str, *args: object) -> Any:
        try:
            return await self._connection.execute(query, *args)
        except asyncpg.LockNotAvailableError:
            self.refused.set()
            raise


async def test_jobs_end_while_a_day_waits_for_a_long_reader_on_postgresql_13(job_store_url: str) -> None:
    connection, reader = [await asyncpg.connect(job_store_url) for _ in range(2)]
    now = await connection.fetchval("select taskmq.now_ms()")
    statements = partition_statements(now - 40 * DAY_MS)
    (name,) = [name for name in statements if name.startswith("job_history") and day_of(name) == now // DAY_MS - 40]
    for statement in statements[name]:
        await connection.execute(statement)
    await reader.execute("begin; select count(*) from taskmq.job_history")
    old = _Old13(connection)

    async with _shop(job_store_url) as app, asyncio.timeout(30):
        dropping = asyncio.create_task(drop_day(cast("Connection", old), "job_history", name))
        await old.refused.wait()
        await _end_job(app.jobs, "new")
        assert not dropping.done()
        await reader.execute("commit")
        await dropping

    assert await connection.fetchval("select to_regclass($1) is null", f"taskmq.{name}")
    await connection.close()
    await reader.close()


async def test_jobs_are_changed_while_the_upkeep_waits_for_a_long_reader(job_store_url: str) -> None:
    """Run both in one process, such as that of `taskmq server --scheduler`."""

    connection, reader = [await asyncpg.connect(job_store_url) for _ in range(2)]
    now = await connection.fetchval("select taskmq.now_ms()")
    for statements in partition_statements(now - 40 * DAY_MS).values():
        for statement in statements:
            await connection.execute(statement)
    await reader.execute("begin; select count(*) from taskmq.job_history")

    async def waits() -> bool:
        # Before PostgreSQL 14 it is repeated in a transaction.
        query = (
            "select exists (select from pg_stat_activity where query like '%alter table%detach%' and state = "
            "'active' and datname = current_database() and pid <> pg_backend_pid())"
        )
        return bool(await connection.fetchval(query))

    async with _shop(job_store_url) as app, asyncio.timeout(30):
        keeping = asyncio.create_task(app.sessions.store().dispatching.maintain())
        await eventually(waits, True, within=20)
        await _end_job(app.jobs, "new")
        assert not keeping.done()
        await reader.execute("commit")
        await keeping

    await connection.close()
    await reader.close()


async def test_a_database_deletes_old_quota_usage(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    day = await connection.fetchval("select taskmq.now_ms() / 86400000")
    later = (day + 1) * DAY_MS
    rows = [("today", day, 0), ("kept", day - 2, 0), ("old", day - 4, 0), ("slow", day - 4, later)]
    await connection.executemany("insert into taskmq.quota_usage values ($1, $2, 1, 1, $3)", rows)
    async with _shop(job_store_url) as app:
        await app.sessions.store().dispatching.maintain()
    found = await connection.fetch("select name from taskmq.quota_usage order by name")
    await connection.close()
    assert [row["name"] for row in found] == ["kept", "slow", "today"]


def test_a_file_deletes_whole_days(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def age(job_id: str, days: int) -> None:
        raw = bytes.fromhex(job_id.replace("-", ""))
        # The time of a submission is in the id.
        at = int.from_bytes(raw[:6]) - days * DAY_MS
        aged = at.to_bytes(6) + raw[6:]
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE job_history SET id = ?, finished = finished - ? WHERE id = ?", (aged, days * DAY_MS, raw)
            )
            connection.execute("UPDATE job_key SET id = ? WHERE id = ?", (aged, raw))
        connection.close()

    asyncio.run(_check(_shop(f"sqlite:///{path}"), age))


async def test_a_task_not_announced_for_thirty_days_is_deleted_on_postgresql(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    async with _shop(job_store_url) as app:
        store = app.sessions.store()
        assert isinstance(store, Catalogued)
        await store.tasks.register([TaskRegistration(task=name, queue="q") for name in "ab"], origin="app")
        age = "update taskmq.task_registration set last_told = last_told - $1::bigint where task = $2"
        await connection.execute(age, 29 * DAY_MS, "a")
        await connection.execute(age, 30 * DAY_MS, "b")

        await store.tasks.register([TaskRegistration(task="c", queue="q")], origin="app")

        assert await store.tasks.names() == ["a", "c"]
    await connection.close()
