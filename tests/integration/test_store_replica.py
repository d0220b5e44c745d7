"""A streaming standby that answers lists: the age of its answers, and when the primary answers in its place."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import httpx
import pytest

from taskmq import TaskMQ
from taskmq.contracts.history import RollupFilter, history_of
from taskmq.contracts.jobs import JobPage, ReplicaStatus, Replicated, RunPage, accept_age
from taskmq.errors import UnsupportedFeature
from taskmq.model.commands import QueuePause
from taskmq.model.history.logs import LogFilter, LogPage
from taskmq.operations.diagnosis.doctor import examine_servers
from taskmq.server import ServerSettings, build
from taskmq_sql.jobs.tables import HEAD, VERSION_TABLE
from taskmq_sql.migrations import upgrade
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.replica import standby as replica_standby
from tests.servers import PostgreSQL, catch_up, standby_of, until
from tests.unit.app_kit import new_url

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

_PAUSE = "select pg_wal_replay_pause()"
_RESUME = "select pg_wal_replay_resume()"
# At a standby, a read that lasts until it is cancelled; at the primary, one that ends at once.
_LONG = "select pg_is_in_recovery(), case when pg_is_in_recovery() then pg_sleep(60) end"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgreSQL]:
    with PostgreSQL({"shared_preload_libraries": "pg_stat_statements"}) as server:
        server.sql("create extension pg_stat_statements")
        asyncio.run(upgrade(server.url))
        yield server


@pytest.fixture(scope="module")
def shared_standby(primary: PostgreSQL) -> Iterator[PostgreSQL]:
    # A read that hinders the recovery is cancelled at once.
    with standby_of(primary, {"max_standby_streaming_delay": "0"}) as server:
        yield server


@pytest.fixture
def standby(primary: PostgreSQL, shared_standby: PostgreSQL) -> Iterator[PostgreSQL]:
    catch_up(primary, shared_standby)
    yield shared_standby
    shared_standby.start()
    shared_standby.sql(_RESUME)


@asynccontextmanager
async def _open(store: str, replica: str | None, max_age: str = "1h") -> AsyncGenerator[TaskMQ]:
    app = TaskMQ(new_url(), store=store, store_replica=replica, store_replica_max_age=max_age)

    @app.task(name="report")
    async def report(month: str) -> None: ...

    async with app:
        yield app


async def _submit(app: TaskMQ) -> str:
    return (await app.jobs.asubmit("report", "june", delay="1h")).id


async def _status(app: TaskMQ) -> ReplicaStatus:
    store = app.sessions.store()
    assert isinstance(store, Replicated)
    found = await store.replica_status()
    assert found is not None
    return found


async def _count(app: TaskMQ, limit: float = 3_600.0) -> tuple[int, float]:
    """Return the number of jobs, and the age of the answer."""
    with accept_age(limit) as accepted:
        found = await app.jobs.acount()
    return found, accepted.age


async def _uses_replica(app: TaskMQ) -> bool:
    return (await _count(app))[1] > 0


def _warnings(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [each.getMessage() for each in caplog.records if each.name == "taskmq.store"]


async def test_only_lists_counts_and_history_are_read_from_the_replica(
    primary: PostgreSQL, standby: PostgreSQL
) -> None:
    async with _open(primary.url, standby.url) as app:
        store = app.sessions.store()
        before, _ = await _count(app)
        await until(lambda: _uses_replica(app))
        standby.sql(_PAUSE)
        job = await _submit(app)
        await store.pause_queue("mail", QueuePause(since=1))

        ages: list[float] = []
        for read in (
            lambda: app.jobs.alist(f"id:{job}"),
            app.jobs.acount,
            store.runs.list_runs,
            lambda: history_of(store).rollups.rollups(RollupFilter(since=0, until=2**40)),
            lambda: history_of(store).logs.page(LogFilter()),
        ):
            with accept_age() as accepted:
                found = await read()
            assert found in ([], before, JobPage([], None), LogPage([], None), RunPage([], None))
            ages.append(accepted.age)
        assert all(ages)
        with accept_age() as accepted:
            assert (await app.jobs.aget(job)).id == job
            assert await app.jobs.ahistory(job) == []
            assert await app.jobs.aattempts(job) == []
            assert (await app.jobs.alogs(job)).lines == []
            assert "mail" in await store.queue_pauses()
            assert await store.identity.accounts.users() == []
            assert await store.schedules.due(0, until=2**40, limit=1) == []
        assert accepted.age == 0
        # Without the caller's consent, lists are current, too.
        assert [each.id for each in (await app.jobs.alist(f"id:{job}")).jobs] == [job]


async def test_the_age_grows_while_the_replica_does_not_replay(primary: PostgreSQL, standby: PostgreSQL) -> None:
    async with _open(primary.url, standby.url) as app:
        await until(lambda: _uses_replica(app))
        standby.sql(_PAUSE)
        await _submit(app)
        submitted = time.monotonic()

        async def lacks_a_second() -> bool:
            asked = time.monotonic()
            age = (await _count(app))[1]
            # Never less than the truth.
            assert age >= asked - submitted
            return asked - submitted > 1

        await until(lacks_a_second)


async def test_a_replica_of_an_idle_primary_is_not_old(primary: PostgreSQL, standby: PostgreSQL) -> None:
    async with _open(primary.url, standby.url) as app:
        await _submit(app)
        catch_up(primary, standby)
        changed = time.monotonic()

        async def is_younger_than_the_last_change() -> bool:
            age = (await _count(app))[1]
            return 0 < age < time.monotonic() - changed - 1

        await until(is_younger_than_the_last_change)


async def test_the_primary_answers_if_the_replica_is_too_old(
    primary: PostgreSQL, standby: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    async with _open(primary.url, standby.url, "2s") as app:
        await until(lambda: _uses_replica(app))
        standby.sql(_PAUSE)
        before, _ = await _count(app)
        await _submit(app)

        async def is_read() -> bool:
            found, age = await _count(app)
            assert (found, age > 0) in ((before, True), (before + 1, False))
            return age > 0

        async def is_reported() -> bool:
            await is_read()
            return bool(_warnings(caplog))

        await until(is_reported)

        assert not await is_read()
        assert (await _status(app)).problem == "it is over 2 s behind"
        (warning,) = _warnings(caplog)
        assert warning.endswith("is not read, the primary answers: it is over 2 s behind")
        standby.sql(_RESUME)
        await until(lambda: _uses_replica(app))
        assert (await _status(app)).problem == ""


async def test_a_caller_may_demand_newer_data_than_the_replica_has(primary: PostgreSQL, standby: PostgreSQL) -> None:
    async with _open(primary.url, standby.url) as app:
        await until(lambda: _uses_replica(app))
        standby.sql(_PAUSE)
        before, _ = await _count(app)
        await _submit(app)

        assert await _count(app, limit=0.0) == (before + 1, 0)
        assert (await _count(app))[0] == before


async def test_the_primary_answers_while_the_replica_is_down(
    primary: PostgreSQL, standby: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "taskmq.store")
    async with _open(primary.url, standby.url) as app:
        await until(lambda: _uses_replica(app))
        standby.kill()
        await _submit(app)
        current = await app.jobs.acount()

        assert [await _count(app) for _ in range(3)] == [(current, 0)] * 3

        assert "postgres:" not in (await _status(app)).problem
        assert (await _status(app)).problem
        assert len(_warnings(caplog)) == 1
        standby.start()
        await until(lambda: _uses_replica(app))
        assert _warnings(caplog)[1].endswith("is read again")


async def test_the_primary_answers_while_the_replica_is_frozen(
    primary: PostgreSQL, standby: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _open(primary.url, standby.url) as app:
        await until(lambda: _uses_replica(app))
        # Five seconds otherwise.
        monkeypatch.setattr(replica_standby, "_PATIENCE", 1.0)
        standby.pause()
        try:
            assert await _count(app) == (await app.jobs.acount(), 0)
            assert (await _status(app)).problem == "it did not answer within 1 s"
        finally:
            standby.resume()


async def test_a_read_that_the_recovery_cancels_is_repeated_at_the_primary(
    primary: PostgreSQL, standby: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(primary.url, name="shop")
    database.use_replica(standby.url, max_age=3_600)
    replica = database.replica
    assert replica is not None
    async with _open(primary.url, None) as app:
        job = await _submit(app)
    catch_up(primary, standby)
    connect = cast("Any", asyncpg).connect
    here, there = await connect(primary.url), await connect(standby.url)
    running = (
        "select count(*) = 1 from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()"
    )

    async def is_running() -> bool:
        return bool(await there.fetchval(running))

    async def read() -> bool:
        with accept_age():
            return bool(await database.shown.run("read", lambda connection: connection.fetchval(_LONG)))

    async def is_cancelled() -> bool:
        reading = asyncio.create_task(read())
        await until(lambda: reading.done() or is_running())
        await here.execute(f"update taskmq.job set priority = priority where id = '{job}'")
        await here.execute("vacuum taskmq.job")
        assert await reading is False
        return (await replica.status()).conflicts > 0

    await until(is_cancelled)

    assert (await replica.status()).problem == ""
    assert [each for each in _warnings(caplog) if "cancelled a read" in each]
    await here.close()
    await there.close()
    await database.aclose()


async def test_a_promoted_replica_is_reported_and_never_read(
    primary: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    with standby_of(primary) as own:
        catch_up(primary, own)
        async with _open(primary.url, own.url) as app:
            await until(lambda: _uses_replica(app))
            own.sql("select pg_promote()")
            await _submit(app)

            assert await _count(app) == (await app.jobs.acount(), 0)

            assert (await _status(app)).is_promoted
            findings = [each for each in (await examine_servers(app)).findings if each.about == "replica"]
            assert [each.level for each in findings] == ["problem"]
            assert "was it promoted?" in findings[0].finding
            assert len(_warnings(caplog)) == 1


@pytest.mark.nightly("tests/integration/test_store_replica.py::test_a_promoted_replica_is_reported_and_never_read")
async def test_a_server_that_follows_another_primary_is_never_read(
    primary: PostgreSQL, standby: PostgreSQL, job_store_url: str
) -> None:
    async with _open(job_store_url, standby.url) as app:
        assert await _count(app) == (0, 0)
        assert (await _status(app)).problem == "it is the standby of another server, or another database"


async def test_a_replica_with_older_tables_is_not_read(primary: PostgreSQL, standby: PostgreSQL) -> None:
    def mark(revision: str) -> None:
        primary.sql(f"update taskmq.{VERSION_TABLE} set version_num = '{revision}'")

    mark("0101")
    catch_up(primary, standby)
    standby.sql(_PAUSE)
    mark(HEAD)
    async with _open(primary.url, standby.url) as app:
        assert (await _count(app))[1] == 0
        assert "has tables of revision 0101" in (await _status(app)).problem
        standby.sql(_RESUME)
        await until(lambda: _uses_replica(app))


@pytest.mark.nightly(
    "tests/integration/test_store_replica.py::test_only_lists_counts_and_history_are_read_from_the_replica"
)
async def test_lists_from_the_replica_cost_the_primary_no_statement_on_jobs(
    primary: PostgreSQL, standby: PostgreSQL
) -> None:
    calls = "select coalesce(sum(calls), 0) from pg_stat_statements where query not like '%pg_stat_statements%'"
    of_jobs = f"{calls} and query like '%from taskmq.job%'"

    async def cost(replica: str | None) -> int:
        async with _open(primary.url, replica) as app:
            if replica is not None:
                await until(lambda: _uses_replica(app))
            before = [int(primary.sql(statement)) for statement in (calls, of_jobs)]
            for _ in range(100):
                with accept_age():
                    await app.jobs.alist("status:scheduled")
                    await app.jobs.acount()
            every, some = (
                int(primary.sql(each)) - count for each, count in zip((calls, of_jobs), before, strict=True)
            )
            print(f"100 lists and counts, replica={replica}: {every} statements at the primary, {some} on jobs")
            return some

    assert await cost(standby.url) == 0
    assert await cost(None) >= 200


async def test_a_server_shows_the_replica_and_its_age_and_a_job_as_it_is(
    primary: PostgreSQL, standby: PostgreSQL
) -> None:
    async with _open(primary.url, standby.url) as app:
        served = build(app, settings=ServerSettings(development=True))
        transport = httpx.ASGITransport(cast("Any", served))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/api/v1") as client:
            await until(lambda: _uses_replica(app))
            standby.sql(_PAUSE)
            job = await _submit(app)

            listed = await client.get("/jobs", params={"filter": f"id:{job}"})
            shown = await client.get(f"/jobs/{job}")
            current = await client.get("/jobs", params={"filter": f"id:{job}"}, headers={"Cache-Control": "no-cache"})
            system = await client.get("/health/system")

            assert (listed.json(), int(listed.headers["Age"]) > 0) == ([], True)
            assert (shown.json()["id"], "Age" in shown.headers) == (job, False)
            assert ([each["id"] for each in current.json()], "Age" in current.headers) == ([job], False)
            replica = system.json()["replica"]
            assert (replica["address"], replica["problem"], replica["age"] > 0) == (standby.url, None, True)


async def test_a_store_in_a_file_refuses_a_replica(tmp_path: Path) -> None:
    app = TaskMQ(new_url(), store=f"sqlite:///{tmp_path}/jobs.db", store_replica="postgresql://ann:secret@db2/jobs")

    with pytest.raises(UnsupportedFeature, match="store_replica= needs a job store in PostgreSQL") as refused:
        app.sessions.current()

    assert "secret" not in str(refused.value)
