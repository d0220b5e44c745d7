"""Faults of the job store's database: cut off in the middle of a submit, restarted, full, locked."""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from msgspec import structs

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import DispatchStore, JobStore, Lane, NewJob, Pick, partition_key
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StateUnavailable, StoreUnavailable
from taskmq.model.envelope import new_job_id
from taskmq.model.jobs.reports import Report
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq_sql import open_job_store
from taskmq_sql.migrations import upgrade
from taskmq_sql.postgres.statements.settings import EVERY
from taskmq_sql.sqlite.store import SqliteJobStore
from tests.servers import PostgreSQL, TcpProxy
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time

_CALLERS: Final = 20
_LARGE: Final = 100_000


class Server:
    """A database behind a proxy."""

    def __init__(self, proxy: TcpProxy, url: str, sql: Callable[[str], str]) -> None:
        self.proxy = proxy
        self.sql = sql
        self.url = urlsplit(url)._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()

    def count(self) -> int:
        """Return the number of jobs."""
        return int(self.sql("select count(*) from taskmq.job"))


@pytest.fixture
def server(postgres_server: PostgreSQL, job_store_url: str) -> Iterator[Server]:
    with TcpProxy(postgres_server.port) as proxy:
        yield Server(proxy, job_store_url, lambda statement: postgres_server.sql(statement, url=job_store_url))


def _app(store: str) -> TaskMQ:
    app = TaskMQ(new_url(), store=store)

    @app.task(name="report", queue="reports")
    async def report(month: str) -> None: ...

    return app


def _job(size: int = 10) -> NewJob:
    return NewJob(
        id=new_job_id(SystemClock().now_ms(), uuid4().bytes),
        task="t",
        queue="work",
        body=b'{"task":"t","args":["%s"]}' % (b"x" * size),
    )


@asynccontextmanager
async def _open_store(url: str) -> AsyncGenerator[JobStore, None]:
    store = open_job_store(url, BrokerOptions(name="faults"))
    try:
        yield store
    finally:
        await store.aclose()


async def _until_one_session(url: str, state: str) -> None:
    """Wait until one session of the database is in that state, in which the server leaves it for a few seconds."""
    query = f"select count(*) from pg_stat_activity where datname = current_database() and {state}"
    connection: Any = await cast("Any", asyncpg).connect(url)

    async def has_session() -> bool:
        return bool(await connection.fetchval(query) == 1)

    try:
        await until(has_session, state)
    finally:
        await connection.close()


async def test_a_submission_with_a_lost_answer_is_unknown_and_one_job_when_repeated(server: Server) -> None:
    app = _app(server.url)
    async with app:
        # All connections are open, and names are known: from now on one statement goes to the server.
        for number in range(2):
            await app.jobs.asubmit("report", "2026-12", job_id=f"earlier-{number}")
        server.proxy.hold_answers(True)
        submitting = asyncio.create_task(app.jobs.asubmit("report", "2027-01", job_id="this"))
        await until(lambda: server.count() == 3)

        server.proxy.cut()
        server.proxy.hold_answers(False)

        with pytest.raises(StoreUnavailable, match="change was made is unknown") as caught:
            await submitting
        assert not caught.value.is_certain
        job = await app.jobs.asubmit("report", "2027-01", job_id="this")
        assert (job.id, server.count()) == ("this", 3)


async def test_an_unreachable_server_has_certainly_changed_nothing(server: Server) -> None:
    async with _open_store(server.url) as store:
        server.proxy.refuse(True)
        with pytest.raises(StoreUnavailable) as caught:
            await store.submit([_job()])
        assert caught.value.is_certain
        server.proxy.refuse(False)
        (submitted,) = await store.submit([_job()])
        assert submitted.is_new


@pytest.mark.parametrize("is_gone", [False, True], ids=["alone", "and the server is gone"])
async def test_a_transaction_that_is_cut_before_its_commit_runs_once_more(
    server: Server, job_store_url: str, is_gone: bool
) -> None:
    async with _open_store(server.url) as store:
        # A unique key makes a transaction of more than one statement.
        for number in range(2):
            await store.submit([structs.replace(_job(), unique=UniqueKey(name=f"earlier-{number}", ttl=60_000))])
        server.proxy.hold_answers(True)
        submitting = asyncio.create_task(
            store.submit([structs.replace(_job(), unique=UniqueKey(name="this", ttl=60_000))])
        )
        await _until_one_session(job_store_url, "state = 'idle in transaction'")
        server.proxy.refuse(is_gone)
        server.proxy.cut()
        server.proxy.hold_answers(False)

        if not is_gone:
            (submitted,) = await submitting
            assert submitted.is_new
            assert server.count() == 3
            return
        with pytest.raises(StoreUnavailable, match="is unreachable") as caught:
            await submitting
        assert caught.value.is_certain
        assert server.count() == 2


@pytest.mark.nightly(
    "tests/integration/test_job_store_faults.py::test_a_submission_with_a_lost_answer_is_unknown_and_one_job_when_repeated"
)
def test_a_server_that_restarts_under_load_keeps_its_confirmed_writes() -> None:
    async def main(server: PostgreSQL) -> None:
        app, acknowledged, errors = _app(server.url), set[str](), list[StoreUnavailable]()
        numbers = itertools.count()
        is_over = asyncio.Event()

        async def submit() -> None:
            while not is_over.is_set():
                name = f"job-{next(numbers)}"
                while name not in acknowledged:
                    try:
                        await app.jobs.asubmit("report", name, job_id=name)
                    except StoreUnavailable as error:
                        errors.append(error)
                        await asyncio.sleep(0.01)
                    else:
                        acknowledged.add(name)

        async with app:
            callers = [asyncio.create_task(submit()) for _ in range(_CALLERS)]
            for stop in (server.stop, server.kill):
                before = len(acknowledged)
                await until(lambda: len(acknowledged) > before + 5 * _CALLERS)  # noqa: B023 - asked in this turn
                await asyncio.to_thread(stop)
                await asyncio.to_thread(server.start)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 5 * _CALLERS)
            is_over.set()
            await asyncio.gather(*callers)
        kept = server.sql("select key from taskmq.job_key").split()
        assert errors
        assert set(kept) == acknowledged
        assert len(kept) == int(server.sql("select count(*) from taskmq.job"))

    with PostgreSQL() as server:
        asyncio.run(upgrade(server.url))
        asyncio.run(main(server))


async def test_a_full_database_refuses_whole_submissions_and_continues_later(server: Server) -> None:
    # PostgreSQL's error for a table that cannot grow: from the sixth row on there is no room.
    server.sql(
        "create function no_room() returns trigger language plpgsql as $$ begin "
        "if (select count(*) from taskmq.job) >= 5 then raise disk_full; end if; return new; end $$"
    )
    async with _open_store(server.url) as store:
        server.sql("create trigger no_room before insert on taskmq.job for each row execute function no_room()")
        await store.submit([_job() for _ in range(3)])

        late = [_job() for _ in range(10)]
        with pytest.raises(StoreUnavailable, match="DiskFull") as caught:
            await store.submit(late)

        assert caught.value.is_certain
        assert server.count() == 3
        server.sql("drop trigger no_room on taskmq.job")
        answers = await store.submit(late)
        assert {answer.is_new for answer in answers} == {True}


async def test_a_full_disk_refuses_whole_submissions_and_continues_later(tmp_path: Path) -> None:
    async with _open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        await store.submit([_job()])
        await vars(store)["_writer"].call(_leave_no_room, care=2)
        large = [_job(_LARGE) for _ in range(100)]
        with pytest.raises(StoreUnavailable, match="no room left") as caught:
            await store.submit(large)
        assert caught.value.is_certain
        assert await store.count_jobs() == 1

        # There is room again: a connection that has met its limit is replaced.
        answers = await store.submit(large)

        assert {answer.is_new for answer in answers} == {True}
        assert await store.count_jobs() == 101


def _leave_no_room(transaction: Any) -> None:
    (pages,) = transaction.connection.execute("PRAGMA page_count").fetchone()
    transaction.connection.execute(f"PRAGMA max_page_count = {pages + 200}")


@pytest.mark.parametrize(
    "limit",
    [
        "lock_timeout",
        pytest.param("statement_timeout", marks=pytest.mark.nightly("tests/integration/test_job_store_faults.py")),
    ],
)
async def test_a_lock_that_cannot_be_acquired_in_time_changes_nothing(server: Server, limit: str) -> None:
    database = urlsplit(server.url).path.removeprefix("/")
    server.sql(f'alter database "{database}" set {limit} = 200')
    async with _open_store(server.url) as store:
        job = _job()
        await store.submit([job])
        async with _lock_tables(server.url):
            for call in _calls(store, job):
                with pytest.raises((StoreUnavailable, StateUnavailable)):
                    await call
        assert server.count() == 1
        (submitted,) = await store.submit([_job()])
        assert submitted.is_new


async def test_a_scheduler_frozen_in_a_transaction_does_not_block_its_partition(
    server: Server, job_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Five seconds otherwise.
    settings = [each.replace("'5s'", "'2s'") for each in EVERY]
    assert settings != [*EVERY]
    monkeypatch.setattr("taskmq_sql.postgres.connections.EVERY", settings)
    async with _open_store(server.url) as one, _open_store(job_store_url) as other:
        frozen, leases = one.dispatching, other.dispatching.leases
        epoch = await frozen.leases.acquire("partition:0", owner="frozen", seconds=1)
        assert isinstance(epoch, int)
        # Its statement is prepared from now on: the lock delays its execution.
        await frozen.take_over(0, epoch)
        async with _lock_tables(job_store_url, "taskmq.dispatch_batch"):
            taking_over = asyncio.create_task(frozen.take_over(0, epoch))
            await _until_one_session(job_store_url, "wait_event_type = 'Lock'")
            server.proxy.hold_answers(True)
        await _until_one_session(job_store_url, "state = 'idle in transaction'")

        async def has_the_partition() -> bool:
            return isinstance(await leases.acquire("partition:0", owner="other", seconds=60), int)

        await until(has_the_partition)

        server.proxy.hold_answers(False)
        with pytest.raises(StoreUnavailable):
            await taking_over


def _calls(store: JobStore, job: NewJob) -> list[Awaitable[object]]:
    dispatching = store.dispatching
    return [
        store.submit([_job()]),
        store.get(job.id),
        store.count_jobs(),
        dispatching.in_flight(dispatching.partition_of("work"), dispatched_before=0),
        dispatching.leases.acquire("partition:1", owner="me", seconds=1),
    ]


@asynccontextmanager
async def _lock_tables(
    url: str, tables: str = "taskmq.job, taskmq.dispatch_batch, taskmq.lease"
) -> AsyncGenerator[None, None]:
    """Lock all of the tables."""
    connection: Any = await cast("Any", asyncpg).connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(f"lock table {tables} in access exclusive mode")
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()


async def test_a_dispatch_with_unreadable_bodies_does_not_count_as_missing(server: Server) -> None:
    database = urlsplit(server.url).path.removeprefix("/")
    server.sql(f'alter database "{database}" set lock_timeout = 200')
    async with _open_store(server.url) as store:
        dispatching, partition = store.dispatching, store.dispatching.partition_of("work")
        job = _job(_LARGE)
        await store.submit([job])
        epoch = await dispatching.leases.acquire(partition_key(partition), owner="first", seconds=60)
        assert isinstance(epoch, int)

        async with _lock_tables(server.url, "taskmq.job_body"):
            with pytest.raises(StoreUnavailable) as caught:
                await dispatching.dispatch(partition, epoch, [Pick(Lane("work", job.priority, ""), 1)])
            assert not caught.value.is_certain
            epoch = await _count_acquired(dispatching, partition, epoch)
            with pytest.raises(StoreUnavailable) as caught:
                await dispatching.take_over(partition, epoch)
            assert not caught.value.is_certain

        (batch,) = await dispatching.take_over(partition, await _count_acquired(dispatching, partition, epoch))
        assert [(one.id, one.body) for one in batch.jobs] == [(job.id, job.body)]


async def _count_acquired(dispatching: DispatchStore, partition: int, epoch: int) -> int:
    await dispatching.leases.release(partition_key(partition), token=epoch)
    found = await dispatching.leases.acquire(partition_key(partition), owner="next", seconds=60)
    assert isinstance(found, int)
    return found


async def test_a_file_that_is_locked_for_too_long_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteJobStore("sqlite:///jobs.db", path, clock=SystemClock(), patience=0.2)
    await store.submit([_job()])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked the file") as caught:
            await store.submit([_job()])
        assert caught.value.is_certain
        # Readers are not delayed.
        assert await store.count_jobs() == 1
        other.execute("ROLLBACK")
    await store.submit([_job()])
    assert await store.count_jobs() == 2
    await store.aclose()


async def test_a_missing_permission_on_the_server_is_reported_like_any_other_outage(server: Server) -> None:
    server.sql("create role guest login")
    try:
        guest = urlsplit(server.url)._replace(netloc=f"guest@127.0.0.1:{server.proxy.port}").geturl()
        server.sql("grant usage on schema taskmq to guest; grant select on all tables in schema taskmq to guest")
        async with _open_store(guest) as store:
            assert await store.count_jobs() == 0
            with pytest.raises(StoreUnavailable, match="permission denied for table") as caught:
                await store.submit([_job()])
            assert caught.value.is_certain
    finally:
        server.sql("drop owned by guest; drop role guest")


def test_a_report_for_a_day_without_a_partition_waits_until_it_exists(
    postgres_server: PostgreSQL, job_store_url: str
) -> None:
    """A user without permission to create tables, and a day without one: the report is refused, and not an outage."""
    user = f"writer_{uuid4().hex}"

    def sql(statement: str) -> None:
        postgres_server.sql(statement, url=job_store_url)

    sql(f"create role {user} login; grant usage on schema taskmq to {user}")
    sql(f"grant all on all tables in schema taskmq to {user}; grant all on all sequences in schema taskmq to {user}")
    url = urlsplit(job_store_url)
    store = open_job_store(url._replace(netloc=url.netloc.replace("postgres@", f"{user}@")).geturl(), BrokerOptions())
    schedulers = store.dispatching

    async def main() -> None:
        await store.submit([_job()])
        partition = schedulers.partition_of("work")
        epoch = await schedulers.leases.acquire(partition_key(partition), owner="scheduler", seconds=60)
        assert isinstance(epoch, int)
        batch = await schedulers.dispatch(
            partition, epoch, [Pick(lane, 1) for lane in await schedulers.lanes(partition)]
        )
        assert batch is not None
        report = Report(id=batch.jobs[0].id, token=batch.jobs[0].token, kind="succeeded")
        sql(
            "do $$ declare day text; begin for day in select inhrelid::regclass from pg_inherits "
            "where inhparent = 'taskmq.job_history'::regclass loop execute 'drop table ' || day; end loop; end $$"
        )

        with pytest.raises(StoreUnavailable, match="lacks a partition for today") as refused:
            await schedulers.apply([report])

        assert refused.value.is_certain
        other = open_job_store(job_store_url, BrokerOptions())
        await other.dispatching.maintain()
        sql(f"grant all on all tables in schema taskmq to {user}")
        assert [each.outcome for each in await schedulers.apply([report])] == ["accepted"]
        await other.aclose()
        await store.aclose()

    asyncio.run(main())
    sql(f"drop owned by {user}; drop role {user}")


async def test_schedulers_do_not_wait_for_slow_lists(job_store_url: str) -> None:
    """Run both in one process, as in `taskmq server --scheduler`: timers fire by the store's clock."""
    store = open_job_store(job_store_url, BrokerOptions())

    locker: Any = await asyncpg.connect(job_store_url)
    await store.check()
    await locker.execute("begin; lock table taskmq.schedule in access exclusive mode")
    lists = [asyncio.create_task(store.schedules.list("shop", limit=1)) for _ in range(2)]
    waiting = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database "
        "where not granted and datname = current_database()"
    )
    while await locker.fetchval(waiting) < len(lists):
        await asyncio.sleep(0)

    async with asyncio.timeout(20):
        await store.now_ms()
        await store.sharing()
        await store.submit([structs.replace(_job(), queue="new", tenant="new")])
        assert [lane.queue for lane in await store.dispatching.lanes(store.dispatching.partition_of("new"))] == [
            "new"
        ]

    assert not any(each.done() for each in lists)
    await locker.execute("commit")
    assert await asyncio.gather(*lists) == [[], []]
    await locker.close()
    await store.aclose()
