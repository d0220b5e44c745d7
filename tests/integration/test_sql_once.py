"""`once`: an effect in the user's database, in the transaction that also writes the key."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Column as SqlColumn
from sqlalchemy import Engine, MetaData, String, Table, create_engine, func, insert, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskmq import Context, InvalidOption, TaskMQ, UnsupportedFeature
from taskmq.model.envelope import Envelope
from taskmq.run.context import current_context
from taskmq.worker import Worker, WorkerConfig
from taskmq_sql import acreate_tables, aforget, aonce, create_tables, forget, once, once_keys
from taskmq_sql.effects import _insert
from tests.unit.app_kit import new_url

effects = Table("effects", MetaData(), SqlColumn("what", String(50)))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/effects.db"
    found: str = request.getfixturevalue("postgres_url")
    return found.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    create_tables(engine)
    create_tables(engine)
    effects.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    create_tables(engine)
    yield engine
    engine.dispose()


def test_only_the_first_transaction_of_a_key_is_told_so(engine: Engine) -> None:
    for expected in (True, False, False):
        with Session(engine) as session, session.begin():
            assert once(session, "pay:7") is expected
        with engine.begin() as connection:
            assert once(connection, "pay:8") is expected
    with Session(engine) as session, session.begin():
        assert once(session, "pay:9")
        assert not once(session, "pay:9")
        assert once(session, "pay:9", scope="refunds")


def test_a_database_without_the_table_says_how_to_create_it(url: str) -> None:
    engine = create_engine(url)
    calls: list[Callable[[Session], object]] = [
        lambda session: once(session, "pay:7"),
        lambda session: forget(session, older_than=timedelta(days=1)),
    ]
    for call in calls:
        with (
            Session(engine) as session,
            pytest.raises(UnsupportedFeature, match=r"no table taskmq_once.*create_tables"),
        ):
            call(session)
    engine.dispose()


@pytest.mark.real_time
async def test_an_async_session_reports_a_missing_table_too(url: str) -> None:
    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://").replace("+psycopg", "+asyncpg"))
    async with AsyncSession(engine) as session:
        with pytest.raises(UnsupportedFeature, match=r"no table taskmq_once.*create_tables"):
            await aonce(session, "pay:7")
        await session.rollback()
        with pytest.raises(UnsupportedFeature, match=r"no table taskmq_once.*create_tables"):
            await aforget(session, older_than=timedelta(days=1))
    await engine.dispose()


def test_other_errors_of_the_database_are_unchanged(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("alter table taskmq_once rename column done to ended"))

    with Session(engine) as session, pytest.raises(DBAPIError, match=r"taskmq_once"):
        once(session, "pay:7")


def test_a_rolled_back_transaction_was_not_the_first(engine: Engine) -> None:
    with Session(engine) as session:
        assert once(session, "pay:7")
        session.execute(insert(effects).values(what="paid"))
        session.rollback()

    with Session(engine) as session, session.begin():
        assert once(session, "pay:7")
        session.execute(insert(effects).values(what="paid"))

    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(effects)) == 1


@pytest.mark.parametrize(
    "end", [pytest.param("commit", marks=pytest.mark.nightly("tests/integration/test_sql_once.py")), "rollback"]
)
def test_a_second_transaction_waits_for_the_first_and_takes_over_at_its_rollback(engine: Engine, end: str) -> None:
    answers: list[bool] = []
    asked = threading.Event()

    def second() -> None:
        with Session(engine) as other, other.begin():
            asked.set()
            answers.append(once(other, "pay:7"))

    thread = threading.Thread(target=second)
    with Session(engine) as session:
        assert once(session, "pay:7")
        thread.start()
        assert asked.wait(10)
        thread.join(0.3)
        assert answers == []
        getattr(session, end)()
    thread.join(20)

    assert answers == [end == "rollback"]


def test_one_of_many_concurrent_transactions_has_the_effect(postgres: Engine) -> None:
    effects.create(postgres)
    firsts: list[bool] = []

    def pay(number: int) -> None:
        with postgres.begin() as connection:
            if once(connection, f"pay:{number % 5}"):
                connection.execute(insert(effects).values(what=f"{number % 5}"))
                firsts.append(True)

    threads = [threading.Thread(target=pay, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    with postgres.connect() as connection:
        rows = connection.execute(select(effects.c.what, func.count()).group_by(effects.c.what)).all()
    assert sorted(tuple(row) for row in rows) == [(f"{number}", 1) for number in range(5)]
    assert len(firsts) == 5


def test_with_a_higher_isolation_the_second_transaction_has_to_be_retried(postgres: Engine) -> None:
    strict = postgres.execution_options(isolation_level="REPEATABLE READ")
    with Session(strict) as session:
        session.execute(select(once_keys)).all()
        with postgres.begin() as other:
            assert once(other, "pay:7")
        with pytest.raises(OperationalError, match="could not serialize"):
            once(session, "pay:7")
        session.rollback()
        assert not once(session, "pay:7")


@pytest.mark.real_time
async def test_coroutines_behave_the_same(url: str) -> None:
    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://"))
    try:
        await acreate_tables(engine)
        async with engine.begin() as connection:
            await acreate_tables(connection)
            assert await aonce(connection, "pay:7")
        async with AsyncSession(engine) as session, session.begin():
            assert not await aonce(session, "pay:7")
            assert await aonce(session, "pay:8")
            assert await aforget(session, older_than=timedelta(days=1)) == 0
            assert await aforget(session, older_than=timedelta(days=-1)) == 2
    finally:
        await engine.dispose()


def test_old_keys_are_deleted_on_request(engine: Engine) -> None:
    with engine.begin() as connection:
        assert once(connection, "pay:7")
        assert forget(connection, older_than=timedelta(days=1)) == 0
        assert forget(connection, older_than=timedelta(days=-1)) == 1
        assert once(connection, "pay:7")


def test_inside_a_task_the_key_is_that_of_the_job_unless_another_is_named(engine: Engine) -> None:
    def context(job_id: str, key: str | None) -> Context:
        envelope = Envelope(task="shop.pay", key=key)
        return Context(envelope, job_id=job_id, max_attempts=1, queue="", redelivered=False)

    with engine.begin() as connection:
        with pytest.raises(InvalidOption, match="needs a key"):
            once(connection)
        for running, key, expected in (
            (context("a", None), None, True),
            (context("a", None), None, False),
            (context("b", "order:7"), None, True),
            (context("c", "order:7"), None, False),
            (context("d", "order:7"), "mail", True),
        ):
            token = current_context.set(running)
            try:
                assert once(connection, key) is expected
            finally:
                current_context.reset(token)
        rows = connection.execute(select(once_keys.c.scope, once_keys.c.key, once_keys.c.job_id)).all()
    assert sorted(tuple(row) for row in rows) == [
        ("shop.pay", "a", "a"),
        ("shop.pay", "mail", "d"),
        ("shop.pay", "order:7", "b"),
    ]


def test_an_invalid_key_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="mysql"):
        _insert("mysql", "key", None)
    with pytest.raises(InvalidOption, match="key: at most 255"):
        _insert("sqlite", "k" * 256, None)
    with pytest.raises(InvalidOption, match="scope: at most 255"):
        _insert("sqlite", "k", "s" * 256)


def test_a_task_that_runs_many_times_has_its_effect_once(engine: Engine) -> None:
    app = TaskMQ(new_url())
    runs: list[str] = []

    @app.task
    def pay(order: str) -> None:
        runs.append(order)
        with Session(engine) as session, session.begin():
            if once(session, order):
                session.execute(insert(effects).values(what=order))
        if len(runs) == 1:
            # After the effect, before the job is known to be done.
            raise ConnectionError

    async def main() -> None:
        for _ in range(5):
            await pay.options().asend("7")
        worker = Worker(app, WorkerConfig(burst=True, concurrency=4))
        await worker.run()

    asyncio.run(main())

    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(effects)) == 1
    assert len(runs) >= 5
