"""Upgrades from every version of the tables, refusals of others, and code of one version beside the next tables."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any, Final
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore, NewJob, Pick, Upgradable
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StateUnavailable, StoreMismatch
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq_embedded.place import connect
from taskmq_sql import open_job_store
from taskmq_sql.jobs.tables import HEAD
from taskmq_sql.migrations import current, revisions, upgrade
from taskmq_sql.sqlite.file import schema
from tests.servers import PostgreSQL

pytestmark = pytest.mark.real_time

_FIRST_VERSION: Final[int] = schema.JOB_STORE.first_version

# A queued job with a key, a scheduled one, and an ended one, as the first version stores them.
_QUEUED, _SCHEDULED, _ENDED = (f"01a20f9d-63a7-73bb-8636-00000000000{number}" for number in (1, 2, 3))
_FIRST_JOBS: Final = f"""
    insert into taskmq.tenant (name) values ('acme');
    insert into taskmq.queue (name, partition) values ('work', 3);
    insert into taskmq.task (name) values ('t');
    insert into taskmq.job (id, due, tenant, queue, task, priority, state, key, body) values
      ('{_QUEUED}', 1, 1, 1, 1, 4, 1, 'order-1', '{{"task":"t"}}'),
      ('{_SCHEDULED}', 4102444800000, 1, 1, 1, 4, 13, null, '{{"task":"t"}}');
    insert into taskmq.job_key (tenant, key, id, fingerprint) values (1, 'order-1', '{_QUEUED}', 'f');
    insert into taskmq.ready (queue, priority, tenant, due, id) values (1, 4, 1, 1, '{_QUEUED}');
    insert into taskmq.timer (shard, due, id) values (2, 4102444800000, '{_SCHEDULED}');
    insert into taskmq.job_history (id, due, tenant, queue, task, priority, state, body, ended, finished, result)
      select '{_ENDED}', 1, 1, 1, 1, 4, 5, '{{"task":"t"}}', taskmq.now_ms(), taskmq.now_ms(), '1';
    insert into taskmq.event (id, at, number, version, kind, state, actor)
      select '{_QUEUED}', taskmq.now_ms(), nextval('taskmq.event_number'), 1, 1, 1, 'ann'"""
_FIRST_JOBS_OF_FILE: Final = f"""
    INSERT INTO name (id, name) VALUES (1, 'acme'), (2, 'work'), (3, 't');
    INSERT INTO job (id, state, version, attempt, token, tenant, queue, task, priority, due, key, body) VALUES
      (x'{_QUEUED.replace("-", "")}', 1, 1, 1, 0, 1, 2, 3, 4, 1, 'order-1', CAST('{{"task":"t"}}' AS BLOB)),
      (x'{_SCHEDULED.replace("-", "")}', 13, 1, 1, 0, 1, 2, 3, 4, 4102444800000, NULL,
       CAST('{{"task":"t"}}' AS BLOB));
    INSERT INTO job_key (key, tenant, id, fingerprint) VALUES ('order-1', 1, x'{_QUEUED.replace("-", "")}', x'66');
    INSERT INTO ready (queue, priority, tenant, due, id) VALUES (2, 4, 1, 1, x'{_QUEUED.replace("-", "")}');
    INSERT INTO timer (shard, due, id) VALUES (2, 4102444800000, x'{_SCHEDULED.replace("-", "")}');
    INSERT INTO job_history
      (id, state, version, attempt, token, tenant, queue, task, priority, due, finished, body, result)
      VALUES (x'{_ENDED.replace("-", "")}', 5, 3, 1, 0, 1, 2, 3, 4, 1, 1, CAST('{{"task":"t"}}' AS BLOB), x'31');
    INSERT INTO event (id, version, at, kind, state, by, note)
      VALUES (x'{_QUEUED.replace("-", "")}', 1, 1, 'change', 1, 'ann', '')"""


@asynccontextmanager
async def _open_store(url: str) -> AsyncGenerator[JobStore, None]:
    store = open_job_store(url, BrokerOptions(name="migrations"))
    try:
        yield store
    finally:
        await store.aclose()


async def _work_through(store: JobStore) -> None:
    """Check that the jobs of the first version exist; run the ready one to its end."""
    found = {job.id: job for job in (await store.list_jobs()).jobs}
    assert {job_id: (job.state, job.tenant, job.queue) for job_id, job in found.items()} == {
        _QUEUED: (JobState.QUEUED, "acme", "work"),
        _SCHEDULED: (JobState.SCHEDULED, "acme", "work"),
        _ENDED: (JobState.SUCCEEDED, "acme", "work"),
    }
    assert await store.find_key("acme", "order-1") == _QUEUED
    ended = await store.get(_ENDED)
    assert ended is not None
    assert (ended.result, ended.body) == (b"1", b'{"task":"t"}')
    assert [event.by for event in await store.events(_QUEUED)] == ["ann"]
    await _run_all(store, partitions=range(8))
    queued = await store.get(_QUEUED)
    assert queued is not None
    assert queued.state is JobState.SUCCEEDED


async def _run_all(store: JobStore, *, partitions: range) -> list[str]:
    """Dispatch and end the ready jobs in these partitions."""
    done: list[str] = []
    dispatching = store.dispatching
    for partition in partitions:
        epoch = await dispatching.leases.acquire(f"partition:{partition}", owner=str(uuid4()), seconds=60)
        assert isinstance(epoch, int)
        if lanes := await dispatching.lanes(partition):
            batch = await dispatching.dispatch(partition, epoch, [Pick(lane, 10) for lane in lanes])
            assert batch is not None
            reports = [Report(id=job.id, token=job.token, kind="succeeded") for job in batch.jobs]
            assert {each.outcome for each in await dispatching.apply(reports)} == {"accepted"}
            await dispatching.confirm([batch.id])
            await dispatching.forget([batch.id])
            done += [job.id for job in batch.jobs]
        await dispatching.leases.release(f"partition:{partition}", token=epoch)
    return done


def _job(**fields: object) -> NewJob:
    job_id = new_job_id(SystemClock().now_ms(), uuid4().bytes)
    return NewJob(**{"id": job_id, "task": "t", "queue": "work", "body": b'{"task":"t"}', **fields})  # type: ignore[arg-type]


# PostgreSQL


def test_revisions_are_numbered_in_order_and_the_last_one_belongs_to_this_code() -> None:
    found = revisions()

    assert found == sorted(found)
    assert found[-1] == HEAD


async def test_jobs_of_the_first_tables_survive_one_upgrade_over_all_revisions(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    await upgrade(postgres_url, revisions()[0])
    postgres_server.sql(_FIRST_JOBS, url=postgres_url)
    async with _open_store(postgres_url) as store:
        assert isinstance(store, Upgradable)
        await store.upgrade()
        await store.upgrade()
        assert await store.current() == HEAD
        await _work_through(store)


@pytest.mark.nightly(
    "tests/integration/test_store_migrations.py::test_jobs_of_the_first_tables_survive_one_upgrade_over_all_revisions"
)
async def test_jobs_in_tables_of_every_revision_survive_an_upgrade(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    first, *later = revisions()
    await upgrade(postgres_url, first)
    postgres_server.sql(_FIRST_JOBS, url=postgres_url)
    for revision in later:
        async with _open_store(postgres_url) as store:
            found = await current(postgres_url)
            with pytest.raises(StoreMismatch, match=f"revision {found}, this version works with {HEAD}"):
                await store.check()
        # From each revision to the next one separately; the test above covers all of them at once.
        await upgrade(postgres_url, revision)
        assert await current(postgres_url) == revision
    async with _open_store(postgres_url) as store:
        await store.check()
        assert isinstance(store, Upgradable)
        await store.upgrade()
        assert await store.current() == HEAD
        await _work_through(store)


async def test_tables_of_a_development_version_are_refused_and_stay(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    development = """
        create schema taskmq; create table taskmq.schema_version (version_num text);
        insert into taskmq.schema_version values ('0021'); create table taskmq.setting (name text, value text)"""
    postgres_server.sql(development, url=postgres_url)
    async with _open_store(postgres_url) as store:
        assert isinstance(store, Upgradable)
        remedy = "revision 0021, which a development version .* cannot be upgraded.*drop schema taskmq cascade"
        with pytest.raises(StoreMismatch, match=remedy):
            await store.check()
        with pytest.raises(StateUnavailable, match=remedy):
            await store.dispatching.leases.find("partition:0")
        with pytest.raises(StoreMismatch, match=remedy):
            await store.upgrade()
        assert await store.current() == "0021"


async def test_an_upgrade_over_tables_of_a_later_version_is_refused(job_store_url: str, tmp_path: Path) -> None:
    await upgrade(job_store_url, later=[_next(tmp_path, understood=True)])
    with pytest.raises(StoreMismatch, match=f"revision 9999, but this older version works with {HEAD}"):
        await upgrade(job_store_url)
    assert await current(job_store_url) == "9999"


_NEXT: Final = """
    revision = "9999"
    down_revision = {head!r}
    branch_labels = None
    depends_on = None
    understood_by_previous = {understood}

    from alembic import op
    from sqlalchemy import Column, Integer, Text


    def upgrade() -> None:
        op.add_column("job", Column("flavour", Text), schema="taskmq")
        op.add_column("job_history", Column("flavour", Text), schema="taskmq")
        op.add_column("ready", Column("weight", Integer, nullable=False, server_default="1"), schema="taskmq")
        op.add_column("lease", Column("since", Integer, nullable=False, server_default="0"), schema="taskmq")
        op.create_table("flavour", Column("name", Text, primary_key=True), schema="taskmq")
"""


def _next(folder: Path, *, understood: bool) -> Path:
    """Return the revision of a taskmq that does not exist yet."""
    (folder / "r9999_next.py").write_text(dedent(_NEXT).format(head=HEAD, understood=understood))
    return folder


async def test_code_runs_during_and_after_an_upgrade_to_the_next_version(job_store_url: str, tmp_path: Path) -> None:
    async with _open_store(job_store_url) as running, _open_store(job_store_url) as started_later:
        await running.submit([_job(), _job(body=b"x" * 5_000)])
        assert len(await _run_all(running, partitions=range(8))) == 2

        await upgrade(job_store_url, later=[_next(tmp_path, understood=True)])

        # Over existing connections with prepared statements, and over new ones.
        for store in (running, started_later):
            await store.check()
            await store.submit([_job(key=f"k{id(store)}"), _job(body=b"x" * 5_000)])
            assert len(await _run_all(store, partitions=range(8))) == 2
        assert await running.count_jobs() == 6


async def test_code_that_does_not_understand_the_next_tables_is_refused_by_name(
    job_store_url: str, tmp_path: Path
) -> None:
    await upgrade(job_store_url, later=[_next(tmp_path, understood=False)])
    async with _open_store(job_store_url) as store:
        with pytest.raises(StoreMismatch, match=f"revision 9999, but this older version works with {HEAD}"):
            await store.check()


async def test_code_that_ends_steps_without_their_runs_is_refused(
    postgres_server: PostgreSQL, job_store_url: str
) -> None:
    before = revisions()[: revisions().index("0104")]
    understood = postgres_server.sql(
        "select value from taskmq.setting where name = 'understood_by'", url=job_store_url
    )
    assert not {*understood.split()} & {*before}


async def test_a_failed_upgrade_leaves_the_tables_unchanged(job_store_url: str, tmp_path: Path) -> None:
    folder = _next(tmp_path, understood=True)
    revision = folder / "r9999_next.py"
    revision.write_text(f"{revision.read_text()}    raise OSError('no room')\n")
    with pytest.raises(OSError, match="no room"):
        await upgrade(job_store_url, later=[folder])
    assert await current(job_store_url) == HEAD
    async with _open_store(job_store_url) as store:
        await store.submit([_job()])
        assert await store.count_jobs() == 1


async def test_concurrent_upgrades_of_a_database_happen_once(postgres_url: str) -> None:
    await asyncio.gather(*(upgrade(postgres_url) for _ in range(4)))
    async with _open_store(postgres_url) as store:
        assert len(await store.submit([_job()])) == 1


@pytest.mark.nightly(
    "tests/integration/test_store_migrations.py::test_code_runs_during_and_after_an_upgrade_to_the_next_version"
)
async def test_queries_behind_an_upgrade_that_waits_for_a_table_continue(job_store_url: str, tmp_path: Path) -> None:
    folder = _next(tmp_path, understood=True)
    other: Any = await asyncpg.connect(job_store_url)
    async with _open_store(job_store_url) as store:
        async with other.transaction():
            await other.execute("select from taskmq.job")
            upgrading = asyncio.create_task(upgrade(job_store_url, later=[folder], patience=0.2))
            waits = "select count(*) from pg_locks where relation = 'taskmq.job'::regclass and not granted"
            while not upgrading.done() and not await other.fetchval(waits):
                await asyncio.sleep(0)

            async with asyncio.timeout(20):
                assert await store.count_jobs() == 0

        await upgrading
    assert await current(job_store_url) == "9999"
    await other.close()


# SQLite

# A version that does not exist yet.
_NEXT_STEP: Final = """
    ALTER TABLE job ADD COLUMN flavour TEXT;
    ALTER TABLE job_history ADD COLUMN flavour TEXT;
    CREATE TABLE flavour (name TEXT PRIMARY KEY) WITHOUT ROWID"""


def _file_of(path: Path) -> None:
    """Return a file of the first version with jobs."""
    with closing(connect(path)) as connection:
        replace(schema.JOB_STORE, steps=()).create(connection)
        connection.executescript(_FIRST_JOBS_OF_FILE)
        connection.execute(f"PRAGMA user_version = {_FIRST_VERSION}")


async def test_jobs_in_a_file_of_the_first_version_survive_an_upgrade(tmp_path: Path) -> None:
    _file_of(tmp_path / "jobs.db")
    async with _open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert isinstance(store, Upgradable)
        assert await store.current() == str(_FIRST_VERSION)
        await asyncio.gather(*(store.upgrade() for _ in range(3)))
        assert await store.current() == str(schema.SCHEMA_VERSION)
        await _work_through(store)


@pytest.mark.nightly(
    "tests/integration/test_store_migrations.py::test_jobs_of_the_first_tables_survive_one_upgrade_over_all_revisions"
)
async def test_runs_get_the_instant_of_their_start_by_an_upgrade(
    tmp_path: Path, postgres_server: PostgreSQL, postgres_url: str
) -> None:
    path = tmp_path / "jobs.db"
    with closing(connect(path)) as connection:
        before = schema.JOB_STORE.steps[: revisions().index("0106") - 1]
        replace(schema.JOB_STORE, steps=before).create(connection)
        row = (new_job_id(0, uuid4().bytes), b'{"id":"x","created":1234}')
        run = "INSERT INTO run (id, tenant, workflow, version, state, record) VALUES (?, '', 'w', 'v', 1, ?)"
        with connection:
            connection.execute(run, row)
        schema.JOB_STORE.upgrade(connection)
        assert connection.execute("SELECT created FROM run").fetchall() == [(1234,)]

    await upgrade(postgres_url, "0105")
    postgres_server.sql(
        """insert into taskmq.run (id, tenant, workflow, version, state, record)
        values (gen_random_uuid(), '', 'w', 'v', 1, '{"id":"x","created":1234}')""",
        url=postgres_url,
    )
    await upgrade(postgres_url)
    assert postgres_server.sql("select created from taskmq.run", url=postgres_url).strip() == "1234"


async def test_a_step_of_the_next_version_changes_a_file_once_and_keeps_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    _file_of(path)
    later = replace(schema.JOB_STORE, steps=(*schema.JOB_STORE.steps, _NEXT_STEP))
    assert later.version == schema.SCHEMA_VERSION + 1
    with closing(connect(path)) as connection:
        schema.JOB_STORE.upgrade(connection)
        assert "run `taskmq store upgrade`" in later.difference(connection)

        assert later.upgrade(connection) == schema.SCHEMA_VERSION
        assert later.upgrade(connection) == later.version

        assert later.difference(connection) == ""
        assert connection.execute("SELECT count(flavour), count(*) FROM job").fetchall() == [(0, 2)]
    async with _open_store(f"sqlite:///{path}") as store:
        with pytest.raises(StoreMismatch, match="install the version of taskmq that upgraded it"):
            await store.check()


def test_a_failed_step_leaves_a_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    _file_of(path)
    with closing(connect(path)) as connection:
        schema.JOB_STORE.upgrade(connection)
        steps = (*schema.JOB_STORE.steps, f"{_NEXT_STEP}; DROP TABLE nowhere")
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            replace(schema.JOB_STORE, steps=steps).upgrade(connection)
        assert schema.JOB_STORE.difference(connection) == ""
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'flavour'").fetchone() == (0,)


async def test_files_of_development_and_later_versions_and_others_are_refused(tmp_path: Path) -> None:
    development, later, other = (tmp_path / f"{name}.db" for name in ("development", "later", "other"))
    _file_of(development)
    _file_of(later)
    for path, statement, remedy in (
        (development, "PRAGMA user_version = 22", "a development version .* move the file away"),
        (later, "PRAGMA user_version = 999", "install the version of taskmq that upgraded it"),
        (other, "CREATE TABLE t (x)", "not a job store: name another path"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            before = connection.execute("SELECT * FROM sqlite_master").fetchall()
        async with _open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, Upgradable)
            with pytest.raises(StoreMismatch, match=f"{path.name} .*{remedy}"):
                await store.upgrade()
            with pytest.raises(StoreMismatch, match=f"{path.name} .*{remedy}"):
                await store.check()
            with pytest.raises(StateUnavailable, match=f"{path.name} .*{remedy}"):
                await store.dispatching.leases.find("partition:0")
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT * FROM sqlite_master").fetchall() == before


async def test_a_missing_file_has_no_version_and_gets_its_tables(tmp_path: Path) -> None:
    async with _open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert isinstance(store, Upgradable)
        assert await store.current() is None
        await store.upgrade()
        assert await store.current() == str(schema.SCHEMA_VERSION)
        await store.submit([_job()])
