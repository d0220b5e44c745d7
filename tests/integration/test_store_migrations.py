"""Tables of every earlier version, with jobs in them, and code of one version beside tables of the next one."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from textwrap import dedent
from typing import Any, Final
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import history_of
from taskmq.contracts.jobs import JobStore, NewJob, Pick, Upgradable
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StoreMismatch
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.reports import Report
from taskmq.model.states import JobState
from taskmq_sql import open_job_store
from taskmq_sql.jobs.tables import HEAD
from taskmq_sql.migrations import current, revisions, upgrade
from taskmq_sql.sqlite.file import schema
from tests.servers import PostgreSQL

pytestmark = pytest.mark.real_time

_STEPS: Final[tuple[str, ...]] = vars(schema)["_STEPS"]

# A queued job with a key, one that waits for its time, and one that has ended, as the first version keeps them.
_QUEUED, _SCHEDULED, _ENDED = (f"01a20f9d-63a7-73bb-8636-00000000000{number}" for number in (1, 2, 3))
_FIRST_JOBS: Final = f"""
    insert into taskmq.tenant (name) values ('acme');
    insert into taskmq.queue (name, slot) values ('work', 3);
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
      (x'{_QUEUED.replace("-", "")}', 4, 1, 1, 0, 1, 2, 3, 4, 1, 'order-1', CAST('{{"task":"t"}}' AS BLOB)),
      (x'{_SCHEDULED.replace("-", "")}', 3, 1, 1, 0, 1, 2, 3, 4, 4102444800000, NULL, CAST('{{"task":"t"}}' AS BLOB));
    INSERT INTO job_key (key, tenant, id, fingerprint) VALUES ('order-1', 1, x'{_QUEUED.replace("-", "")}', x'66');
    INSERT INTO ready (queue, priority, tenant, due, id) VALUES (2, 4, 1, 1, x'{_QUEUED.replace("-", "")}');
    INSERT INTO timer (shard, due, id) VALUES (2, 4102444800000, x'{_SCHEDULED.replace("-", "")}');
    INSERT INTO job_history
      (id, state, version, attempt, token, tenant, queue, task, priority, due, finished, body, result)
      VALUES (x'{_ENDED.replace("-", "")}', 8, 3, 1, 0, 1, 2, 3, 4, 1, 1, CAST('{{"task":"t"}}' AS BLOB), x'31');
    INSERT INTO event (id, version, at, kind, state, by, note)
      VALUES (x'{_QUEUED.replace("-", "")}', 1, 1, 'change', 4, 'ann', '')"""


@asynccontextmanager
async def _opened(url: str) -> AsyncGenerator[JobStore, None]:
    store = open_job_store(url, BrokerOptions(name="migrations"))
    try:
        yield store
    finally:
        await store.aclose()


async def _work_through(store: JobStore) -> None:
    """The jobs of the first version are there, and the one that is ready runs and ends."""
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
    await _run_all(store, slots=range(8))
    queued = await store.get(_QUEUED)
    assert queued is not None
    assert queued.state is JobState.SUCCEEDED


async def _run_all(store: JobStore, *, slots: range) -> list[str]:
    """Dispatch and end what is ready in these slots."""
    done: list[str] = []
    dispatching = store.dispatching
    for slot in slots:
        epoch = await dispatching.leases.acquire(f"slot:{slot}", owner=str(uuid4()), seconds=60)
        assert isinstance(epoch, int)
        if lanes := await dispatching.lanes(slot):
            batch = await dispatching.dispatch(slot, epoch, [Pick(lane, 10) for lane in lanes])
            assert batch is not None
            reports = [Report(id=job.id, token=job.token, kind="succeeded") for job in batch.jobs]
            assert {each.outcome for each in await dispatching.apply(reports)} == {"accepted"}
            await dispatching.confirm([batch.id])
            await dispatching.forget([batch.id])
            done += [job.id for job in batch.jobs]
        await dispatching.leases.release(f"slot:{slot}", token=epoch)
    return done


def _job(**fields: object) -> NewJob:
    job_id = new_job_id(SystemClock().now_ms(), uuid4().bytes)
    return NewJob(**{"id": job_id, "task": "t", "queue": "work", "body": b'{"task":"t"}', **fields})  # type: ignore[arg-type]


# PostgreSQL


def test_revisions_are_numbered_in_their_order_and_the_last_one_is_this_codes() -> None:
    found = revisions()

    assert found == sorted(found)
    assert found[-1] == HEAD


async def test_jobs_of_the_first_tables_are_there_after_one_upgrade_over_all_revisions(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    await upgrade(postgres_url, revisions()[0])
    postgres_server.sql(_FIRST_JOBS, url=postgres_url)
    async with _opened(postgres_url) as store:
        assert isinstance(store, Upgradable)
        await store.upgrade()
        await store.upgrade()
        assert await store.current() == HEAD
        await _work_through(store)


async def test_jobs_in_tables_of_every_revision_are_there_after_an_upgrade(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    first, *later = revisions()
    await upgrade(postgres_url, first)
    postgres_server.sql(_FIRST_JOBS, url=postgres_url)
    for revision in later:
        async with _opened(postgres_url) as store:
            found = await current(postgres_url)
            with pytest.raises(StoreMismatch, match=f"revision {found}, this version works with {HEAD}"):
                await store.check()
        # From each revision to the next one, by itself; over all of them at once above.
        await upgrade(postgres_url, revision)
        assert await current(postgres_url) == revision
    async with _opened(postgres_url) as store:
        await store.check()
        assert isinstance(store, Upgradable)
        await store.upgrade()
        assert await store.current() == HEAD
        await _work_through(store)


# What was told before notices said whose they are; PostgreSQL has no JSON with a NUL.
_OLD_NOTICES: Final = """
    insert into taskmq.alert_notice (id, at, next_at, tries, content) values
      ('theirs', 1, null, 1, '{"id":"theirs","channel":"mailto:a@b.c","at":1,"changes":[],"rule":{"name":"r",'
        '"metric":"failures","threshold":1.0,"tenant":"acme","note":"\\u0000"}}'),
      ('ours', 1, null, 1, '{"id":"ours","channel":"mailto:a@b.c","at":1,"changes":[],"rule":{"name":"r",'
        '"metric":"failures","threshold":1.0}}')"""


async def _check_notices(store: JobStore) -> None:
    alerts = history_of(store).alerts
    assert [each.id for each in await alerts.notices("acme")] == ["theirs"]
    assert [each.id for each in await alerts.notices("")] == ["ours"]


async def test_notices_that_were_sent_before_are_their_tenants(
    postgres_server: PostgreSQL, postgres_url: str
) -> None:
    await upgrade(postgres_url, "0009")
    postgres_server.sql(_OLD_NOTICES, url=postgres_url)
    await upgrade(postgres_url)
    async with _opened(postgres_url) as store:
        await _check_notices(store)


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
    """The revision of a taskmq that does not exist yet."""
    (folder / "r9999_next.py").write_text(dedent(_NEXT).format(head=HEAD, understood=understood))
    return folder


async def test_code_goes_on_while_and_after_its_tables_become_those_of_the_next_version(
    job_store_url: str, tmp_path: Path
) -> None:
    async with _opened(job_store_url) as running, _opened(job_store_url) as started_later:
        await running.submit([_job(), _job(body=b"x" * 5_000)])
        assert len(await _run_all(running, slots=range(8))) == 2

        await upgrade(job_store_url, later=[_next(tmp_path, understood=True)])

        # Over the connections that there are, with the statements that were prepared before, and over new ones.
        for store in (running, started_later):
            await store.check()
            await store.submit([_job(key=f"k{id(store)}"), _job(body=b"x" * 5_000)])
            assert len(await _run_all(store, slots=range(8))) == 2
        assert await running.count_jobs() == 6


async def test_code_that_does_not_understand_the_next_tables_is_refused_by_name(
    job_store_url: str, tmp_path: Path
) -> None:
    await upgrade(job_store_url, later=[_next(tmp_path, understood=False)])
    async with _opened(job_store_url) as store:
        with pytest.raises(StoreMismatch, match=f"revision 9999, and this older version works with {HEAD}"):
            await store.check()


async def test_an_upgrade_that_fails_leaves_the_tables_as_they_were(job_store_url: str, tmp_path: Path) -> None:
    folder = _next(tmp_path, understood=True)
    revision = folder / "r9999_next.py"
    revision.write_text(f"{revision.read_text()}    raise OSError('no room')\n")
    with pytest.raises(OSError, match="no room"):
        await upgrade(job_store_url, later=[folder])
    assert await current(job_store_url) == HEAD
    async with _opened(job_store_url) as store:
        await store.submit([_job()])
        assert await store.count_jobs() == 1


async def test_several_that_upgrade_one_database_do_it_once(postgres_url: str) -> None:
    await asyncio.gather(*(upgrade(postgres_url) for _ in range(4)))
    async with _opened(postgres_url) as store:
        assert len(await store.submit([_job()])) == 1


async def test_who_comes_behind_an_upgrade_that_waits_for_a_table_goes_on(job_store_url: str, tmp_path: Path) -> None:
    folder = _next(tmp_path, understood=True)
    other: Any = await asyncpg.connect(job_store_url)
    async with _opened(job_store_url) as store:
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


def _file_of(path: Path, version: int) -> None:
    """A file as the taskmq of that version has made it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_STEPS[0])
        connection.executescript(_FIRST_JOBS_OF_FILE)
        for step in _STEPS[1:version]:
            connection.executescript(step)
        connection.execute(f"PRAGMA user_version = {version}")


def test_notices_of_a_file_that_were_sent_before_are_their_tenants(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    _file_of(path, 10)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(_OLD_NOTICES.replace("taskmq.", "").replace("'\n        '", ""))
        connection.commit()

    async def main() -> None:
        async with _opened(f"sqlite:///{path}") as store:
            assert isinstance(store, Upgradable)
            await store.upgrade()
            await _check_notices(store)

    asyncio.run(main())


@pytest.mark.parametrize("version", range(1, len(_STEPS) + 1))
async def test_jobs_in_files_of_every_version_are_there_after_an_upgrade(tmp_path: Path, version: int) -> None:
    _file_of(tmp_path / "jobs.db", version)
    async with _opened(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert isinstance(store, Upgradable)
        assert await store.current() == str(version)
        if version < len(_STEPS):
            with pytest.raises(StoreMismatch, match="run `taskmq store upgrade`"):
                await store.check()
        await asyncio.gather(*(store.upgrade() for _ in range(3)))
        assert await store.current() == str(len(_STEPS))
        await _work_through(store)


async def test_a_file_of_a_later_version_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    later, other = tmp_path / "later.db", tmp_path / "other.db"
    _file_of(later, len(_STEPS))
    for path, statement in ((later, "PRAGMA user_version = 999"), (other, "CREATE TABLE t (x)")):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
        async with _opened(f"sqlite:///{path}") as store:
            assert isinstance(store, Upgradable)
            with pytest.raises(StoreMismatch, match=path.name):
                await store.upgrade()
            with pytest.raises(StoreMismatch, match=path.name):
                await store.check()


async def test_a_file_that_is_not_there_has_no_version_and_gets_its_tables(tmp_path: Path) -> None:
    async with _opened(f"sqlite:///{tmp_path}/jobs.db") as store:
        assert isinstance(store, Upgradable)
        assert await store.current() is None
        await store.upgrade()
        assert await store.current() == str(len(_STEPS))
        await store.submit([_job()])
