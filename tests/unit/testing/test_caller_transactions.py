"""Jobs submitted in the caller's transaction, in a test without the store's database."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from taskmq import DuplicateJob, TaskMQ
from taskmq.errors import JobNotFound, UnsupportedFeature
from taskmq.model.states import JobState
from taskmq.testing import Harness

Caller = Session | Connection

_ENGINE = create_engine("sqlite://")


@pytest.fixture
def shop() -> Iterator[Harness]:
    app = TaskMQ("memory://")
    app.task(name="count")(_next)
    app.task(name="once", unique=True)(_next)
    with Harness(app, timeout="50s", store=True) as harness:
        yield harness


@pytest.fixture(params=["session", "connection"])
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with Session(_ENGINE) if request.param == "session" else _ENGINE.connect() as caller:
        yield caller


def _next(number: int) -> int:
    return number + 1


def _count(shop: Harness) -> int:
    return shop.app.jobs.count()


def test_a_job_exists_once_its_transaction_has_committed(shop: Harness, caller: Caller) -> None:
    job = shop.app.jobs.submit("count", 1, job_id="mine", connection=caller)
    assert _count(shop) == 0
    shop.drain()
    assert _count(shop) == 0

    caller.commit()

    assert shop.app.jobs.get("mine").state is JobState.QUEUED
    shop.drain()
    assert job.result() == 2


def test_a_job_of_a_rolled_back_transaction_never_existed(shop: Harness, caller: Caller) -> None:
    shop.app.jobs.submit("count", 1, job_id="mine", connection=caller)
    caller.rollback()
    caller.commit()
    assert _count(shop) == 0

    shop.app.jobs.submit("count", 2, job_id="mine", connection=caller)
    caller.close()

    assert _count(shop) == 0
    assert shop.app.jobs.submit("count", 3, job_id="mine").id == "mine"


def test_a_job_waits_for_another_one_of_its_transaction(shop: Harness, caller: Caller) -> None:
    jobs = shop.app.jobs
    first = jobs.submit("count", 1, connection=caller)
    second = jobs.submit("count", 2, depends_on=[first], connection=caller)
    with pytest.raises(JobNotFound, match="depends_on"):
        jobs.submit("count", 3, depends_on=[first])

    caller.commit()
    assert second.state() is JobState.WAITING
    shop.drain()

    assert (first.result(), second.result()) == (2, 3)


def test_a_transaction_sees_what_others_have_committed_in_the_meantime(shop: Harness, caller: Caller) -> None:
    jobs = shop.app.jobs
    jobs.submit("count", 1, connection=caller)
    other = jobs.submit("count", 2)
    last = jobs.submit("count", 3, depends_on=[other], connection=caller)
    caller.commit()
    shop.drain()

    assert last.result() == 4


def test_rolling_back_a_savepoint_forgets_only_its_jobs(shop: Harness, caller: Caller) -> None:
    jobs = shop.app.jobs
    jobs.submit("count", 1, job_id="before", connection=caller)
    outer = caller.begin_nested()
    jobs.submit("count", 2, job_id="undone", connection=caller)
    with caller.begin_nested():
        jobs.submit("count", 3, job_id="inner", connection=caller)
    outer.rollback()
    with caller.begin_nested():
        jobs.submit("count", 4, job_id="released", connection=caller)
    assert _count(shop) == 0
    caller.commit()

    assert sorted(str(job.key) for job in jobs.list().jobs) == ["before", "released"]


def test_a_savepoint_older_than_the_first_job_undoes_it(shop: Harness, caller: Caller) -> None:
    savepoint = caller.begin_nested()
    shop.app.jobs.submit("count", 1, connection=caller)
    savepoint.rollback()
    caller.commit()

    assert _count(shop) == 0


def test_a_unique_key_is_taken_within_the_transaction_and_free_after_its_rollback(
    shop: Harness, caller: Caller
) -> None:
    once = shop.app.tasks["once"]
    shop.app.jobs.submit(once, 1, connection=caller)
    with pytest.raises(DuplicateJob):
        shop.app.jobs.submit(once, 1, connection=caller)
    caller.rollback()

    assert shop.app.jobs.submit(once, 1).state() is JobState.QUEUED


def test_one_session_has_one_transaction_after_the_other(shop: Harness, caller: Caller) -> None:
    for number in range(3):
        shop.app.jobs.submit("count", number, connection=caller)
        caller.commit()
        assert _count(shop) == number + 1
    shop.app.jobs.submit("count", 4, connection=caller)
    caller.rollback()

    assert _count(shop) == 3


def test_a_session_within_the_transaction_of_a_test_commits_for_the_test(shop: Harness) -> None:
    with _ENGINE.connect() as connection:
        around = connection.begin()
        make = sessionmaker(bind=connection, join_transaction_mode="create_savepoint")
        with make() as session:
            shop.app.jobs.submit("count", 1, connection=session)
            session.commit()
        assert _count(shop) == 1
        around.rollback()


@pytest.mark.real_time
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("kind", ["session", "connection"])
async def test_async_sessions_and_connections_are_followed(shop: Harness, kind: str, *, commits: bool) -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    made: Any = AsyncSession(engine) if kind == "session" else engine.connect()
    async with made as caller:
        first = await shop.app.jobs.asubmit("count", 1, connection=caller)
        second = await shop.app.jobs.asubmit("count", 2, depends_on=[first], connection=caller)
        assert await shop.app.jobs.acount() == 0
        if commits:
            await caller.commit()
    await engine.dispose()
    await shop.adrain()

    assert await shop.app.jobs.acount() == (2 if commits else 0)
    if commits:
        assert await second.aresult() == 3


@pytest.mark.parametrize("connection", [7, "session"])
def test_a_connection_without_commit_notifications_is_refused(shop: Harness, connection: object) -> None:
    with pytest.raises(
        UnsupportedFeature, match=f"connection={type(connection).__name__} is not supported: in tests"
    ):
        shop.app.jobs.submit("count", 1, connection=connection)


def test_a_connection_of_the_driver_is_refused(shop: Harness) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(UnsupportedFeature, match="others do not announce their commits"):
        shop.app.jobs.submit("count", 1, connection=connection)
    connection.close()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("store", "taken"), [("postgresql://db/x", "asynchronous"), ("sqlite:///jobs.db", "synchronous")]
)
async def test_a_kind_refused_by_the_real_store_is_refused_in_tests(store: str, taken: str) -> None:
    app = TaskMQ("memory://", store=store)
    app.task(name="count")(_next)
    engine = create_async_engine("sqlite+aiosqlite://")
    with Harness(app) as harness, Session(_ENGINE) as session:
        async with AsyncSession(engine) as other:
            fits, refused = (other, session) if taken == "asynchronous" else (session, other)
            with pytest.raises(UnsupportedFeature, match=f"which accepts only {taken} sessions and connections"):
                await app.jobs.asubmit("count", 1, connection=refused)
            await app.jobs.asubmit("count", 1, connection=fits)
            await other.commit()
            session.commit()
        assert await app.jobs.acount() == 1
        await harness.adrain()
    await engine.dispose()
