"""Jobs that wait for others of the same transaction, which is the caller's own."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from sqlite3 import connect
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest
from django.db.utils import ConnectionHandler  # type: ignore[import-untyped]
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskmq import Job, TaskMQ
from taskmq.errors import JobNotFound, UnsupportedFeature
from taskmq.model.states import JobState

pytestmark = pytest.mark.real_time

_Begin = Callable[[str], Any]
# A session, which remains in the gate, has such a connection.
_ONCE = pytest.mark.nightly("tests/integration/test_callers_transactions.py")
_LATER = pytest.mark.nightly(
    "tests/integration/test_callers_transactions.py::test_a_job_waits_for_one_of_the_same_transaction"
)


class _Undone(Exception):
    pass


@asynccontextmanager
async def _session(url: str) -> AsyncGenerator[Any]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def _connection(url: str) -> AsyncGenerator[Any]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def _driver(url: str) -> AsyncGenerator[Any]:
    connection: Any = await asyncpg.connect(url)  # pyright: ignore[reportUnknownMemberType]
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _file(url: str) -> AsyncGenerator[Any]:
    with closing(connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


@pytest.fixture(
    params=[_session, pytest.param(_connection, marks=_ONCE), _driver, _file],
    ids=["session", "connection", "driver", "file"],
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, _Begin]:
    if request.param is _file:
        return f"sqlite:///{tmp_path}/jobs.db", _file
    return request.getfixturevalue("job_store_url"), request.param


def _shop(url: str) -> tuple[TaskMQ, Any]:
    app = TaskMQ("memory://", store=url)

    @app.task(name="step", queue="bills")
    def step(number: int) -> None: ...

    return app, step


@pytest.mark.parametrize(
    ("job_id", "tenant"),
    [
        (None, None),
        ("bill-1", "acme"),
        pytest.param(None, "acme", marks=_LATER),
        pytest.param("bill-1", None, marks=_LATER),
    ],
)
async def test_a_job_waits_for_one_of_the_same_transaction(
    store: tuple[str, _Begin], tenant: str | None, job_id: str | None
) -> None:
    url, begin = store
    app, step = _shop(url)
    async with app:
        await app.jobs.acount()
        async with begin(url) as connection:
            given = {"tenant": tenant, "connection": connection}
            first: Job[None] = await app.jobs.asubmit(step, 1, job_id=job_id, **given)
            second: Job[None] = await app.jobs.asubmit(step, 2, depends_on=[first], **given)
            third: Job[None] = await app.jobs.asubmit(step, 3, depends_on=[(first.id, "ended")], **given)
            (fourth,) = await app.jobs.asubmit_many(
                step.options(tenant=tenant) if tenant else step, [(4,)], depends_on=[second], connection=connection
            )
            assert await app.jobs.acount() == 0

        states = [await job.astate() for job in (first, second, third, fourth)]

    assert states == [JobState.QUEUED] + [JobState.WAITING] * 3


async def test_a_rolled_back_transaction_leaves_neither_job(store: tuple[str, _Begin]) -> None:
    url, begin = store
    app, step = _shop(url)
    async with app:
        await app.jobs.acount()

        async def bill() -> None:
            async with begin(url) as connection:
                first = await app.jobs.asubmit(step, 1, job_id="bill-1", connection=connection)
                await app.jobs.asubmit(step, 2, depends_on=[first], connection=connection)
                raise _Undone

        with pytest.raises(_Undone):
            await bill()

        assert await app.jobs.acount() == 0
        with pytest.raises(JobNotFound, match="bill-1"):
            await app.jobs.asubmit(step, 2, depends_on=["bill-1"])


async def test_an_unknown_dependency_is_refused_in_a_transaction(store: tuple[str, _Begin]) -> None:
    url, begin = store
    app, step = _shop(url)
    async with app:
        await app.jobs.acount()
        async with begin(url) as connection:
            await app.jobs.asubmit(step, 1, job_id="bill-1", tenant="acme", connection=connection)
            with pytest.raises(JobNotFound, match="no job 'bill-1'"):
                await app.jobs.asubmit(step, 2, depends_on=["bill-1"], connection=connection)

        assert await app.jobs.acount() == 1


async def test_a_unique_call_names_the_one_of_the_same_transaction(store: tuple[str, _Begin]) -> None:
    url, begin = store
    app = TaskMQ("memory://", store=url)

    @app.task(queue="bills", unique=True, unique_policy="existing")
    def bill(number: int) -> None: ...

    async with app:
        await app.jobs.acount()
        async with begin(url) as connection:
            first = await app.jobs.asubmit(bill, 7, job_id="bill-7", connection=connection)
            second = await app.jobs.asubmit(bill, 7, connection=connection)

    assert (first.id, second.id) == ("bill-7", "bill-7")


@asynccontextmanager
async def _foreign(kind: str, url: str) -> AsyncGenerator[Any]:
    """Return connections of other drivers and programs, each to the store's database."""
    with_psycopg = url.replace("postgresql://", "postgresql+psycopg://")
    match kind:
        case "psycopg.Connection":
            with psycopg.connect(url) as sync:
                yield sync
        case "psycopg.AsyncConnection":
            async with await psycopg.AsyncConnection.connect(url) as connection:
                yield connection
        case "sqlalchemy.Session":
            engine = create_engine(with_psycopg)
            with Session(engine) as session:
                yield session
            engine.dispose()
        case "sqlalchemy.AsyncSession over psycopg.AsyncConnection":
            async_engine = create_async_engine(with_psycopg)
            async with AsyncSession(async_engine) as session:
                yield session
            await async_engine.dispose()
        case _:
            parts = urlsplit(url)
            place = {"NAME": parts.path[1:], "HOST": parts.hostname, "PORT": parts.port, "USER": parts.username}
            yield ConnectionHandler({"default": {"ENGINE": "django.db.backends.postgresql", **place}})["default"]


@pytest.mark.parametrize(
    "kind",
    [
        "psycopg.Connection",
        "psycopg.AsyncConnection",
        "sqlalchemy.Session",
        "sqlalchemy.AsyncSession over psycopg.AsyncConnection",
        "django.DatabaseWrapper",
    ],
)
async def test_connections_unusable_for_a_postgresql_store_are_refused(job_store_url: str, kind: str) -> None:
    app, step = _shop(job_store_url)
    async with app, _foreign(kind, job_store_url) as connection:
        with pytest.raises(UnsupportedFeature, match=rf"^connection={kind} is not supported: .* docs/web\.md$"):
            await app.jobs.asubmit(step, 1, connection=connection)
        assert await app.jobs.acount() == 0


async def test_an_async_session_is_refused_by_a_store_in_a_file(tmp_path: Path) -> None:
    app, step = _shop(f"sqlite:///{tmp_path}/jobs.db")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/jobs.db")
    async with app, AsyncSession(engine) as session:
        await app.jobs.acount()
        with pytest.raises(
            UnsupportedFeature, match="connection=AsyncSession is not supported: pass a connection of sqlite3"
        ):
            await app.jobs.asubmit(step, 1, connection=session)
    await engine.dispose()
