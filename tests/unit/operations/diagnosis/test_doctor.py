import asyncio
from pathlib import Path

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.broker import Outgoing, Subscription
from taskmq.contracts.jobs import Upgradable
from taskmq.operations.diagnosis.doctor import examine, examine_servers
from tests.coroutines import run_by
from tests.servers.postgres import PostgreSQL
from tests.unit.app_kit import new_url
from tests.virtual_time import run

pytestmark = pytest.mark.real_time


async def test_an_installation_without_workers_is_told_what_is_missing() -> None:
    app = TaskMQ(new_url())

    @app.task(name="resize", queue="images")
    def resize(number: int) -> None: ...

    before = await examine(app)
    async with app:
        await app.tasks["resize"].asend(1)
        after = await examine(app)

    assert before.is_complete
    assert not before.has_problem
    assert ("warning", "images", "the queue does not exist yet", "start a worker") in before.findings
    assert after.has_problem
    (problem,) = [finding for finding in after.findings if finding.level == "problem"]
    assert (problem.about, problem.finding) == ("images", "no consumer, 1 messages wait")


@pytest.mark.parametrize(
    ("before", "after", "stranded"),
    [
        (
            WorkQueue("mail", lanes=16),
            WorkQueue("mail", lanes=8),
            [f"mail.lane{number:02d}" for number in range(8, 16)],
        ),
        (WorkQueue("mail", lanes=3), WorkQueue("mail"), ["mail.lane00", "mail.lane01", "mail.lane02"]),
        (WorkQueue("mail"), WorkQueue("mail", lanes=8), ["mail.p.high"]),
        (WorkQueue("mail"), WorkQueue("mail", priorities="native"), ["mail.p.high", "mail.p.low"]),
        (WorkQueue("mail", ordered=3), WorkQueue("mail", ordered=2), ["mail.s02"]),
        (
            WorkQueue("mail"),
            WorkQueue("mail", ordered=2),
            ["mail.p.high", "mail", "mail.p.low", "mail.parcels"],
        ),
    ],
)
async def test_a_message_in_a_queue_that_workers_no_longer_read_is_a_problem(
    before: WorkQueue, after: WorkQueue, stranded: list[str]
) -> None:
    app = TaskMQ(new_url(), queues=[after])
    async with app:
        broker = app.sessions.current().broker
        await broker.declare([before, after])
        for queue in before.physical:
            await broker.publish(
                Outgoing(queue=queue, body=b"{}", content_type="", job_id="job", task="post"), timeout=5
            )

    left = [each for each in (await examine(app)).findings if "wait without a consumer" in each.finding]
    async with app:
        for queue in before.physical:
            await app.sessions.current().broker.purge(queue)
    later = [each for each in (await examine(app)).findings if "wait without a consumer" in each.finding]

    text = "1 messages wait without a consumer: the definition of 'mail' has changed"
    remedy = "run a worker with the former definition until it is empty"
    assert left == [("problem", queue, text, remedy) for queue in stranded]
    assert later == []


async def test_a_queue_read_by_workers_with_an_older_description_is_not_a_problem() -> None:
    async with TaskMQ(new_url(), queues=[WorkQueue("mail", lanes=2)]) as app:
        broker = app.sessions.current().broker
        await broker.declare([WorkQueue("mail")])
        for job in ("in hand", "waits"):
            urgent = Outgoing(queue="mail.p.high", body=b"{}", content_type="", job_id=job, task="post")
            await broker.publish(urgent, timeout=5)
        consumer = await broker.consume([Subscription("mail.p.high", 1)], lambda _: None)

        findings = (await examine(app)).findings

        await consumer.stop()
    assert [each for each in findings if each.about == "mail.p.high"] == []


def test_an_unreachable_broker_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmq.operations.diagnosis.doctor._TIMEOUT", 1.0)
    examination = asyncio.run(examine(TaskMQ("amqp://guest:S3CRET@127.0.0.1:1/", send_timeout="1s")))

    assert not examination.is_complete
    assert examination.has_problem
    assert "S3CRET" not in str(examination.findings)


async def test_each_unavailable_component_is_named_and_the_others_are_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmq.operations.diagnosis.doctor._TIMEOUT", 3.0)
    store = f"sqlite:///{tmp_path}/jobs.db"
    app = TaskMQ("amqp://127.0.0.1:1/", state="redis://127.0.0.1:1/0", store=store, send_timeout="1s")

    examination = await examine(app)

    assert not examination.is_complete
    problems = {each.about: each.remedy for each in examination.findings if each.level == "problem"}
    assert problems == {
        "broker": "is it running, and is the URL right? --url",
        "state": "is it running, and is the URL right? --state",
    }
    assert any(each.about == "store" and each.finding.startswith("SQLite 3.") for each in examination.findings)


@run_by(lambda test: run(test()))
async def test_a_broker_that_answers_slowly_is_a_warning_and_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer_never(queues: object) -> None:
        del queues
        await asyncio.Event().wait()

    async with TaskMQ(new_url()) as app:
        monkeypatch.setattr(app.sessions.current().broker, "stats", answer_never)
        examination = await examine_servers(app, within=4.0)

    assert not examination.is_complete
    assert not examination.has_problem
    warnings = {each.about: each.finding for each in examination.findings if each.level == "warning"}
    assert warnings["broker"] == "examined in part: it took longer than 4 s"


# The store


def _with_store(url: str) -> TaskMQ:
    app = TaskMQ(new_url(), store=url)

    @app.task(name="resize", queue="images")
    def resize(number: int) -> None: ...

    return app


def _about_the_store(app: TaskMQ) -> list[tuple[str, str, str]]:
    found = asyncio.run(examine(app)).findings
    return [(each.level, each.finding, each.remedy) for each in found if each.about == "store"]


def test_jobs_without_a_scheduler_are_a_problem(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    before = _about_the_store(_with_store(url))
    with _with_store(url) as app:
        app.jobs.submit("resize", 1)

    after = _about_the_store(_with_store(url))

    assert before[-1] == (
        "warning",
        "8 of 8 partitions have no scheduler; ready jobs: 0",
        "start `taskmq scheduler`",
    )
    assert after[-1] == (
        "problem",
        "8 of 8 partitions have no scheduler; ready jobs: 1",
        "start `taskmq scheduler`",
    )
    assert any(finding.startswith("SQLite 3.") for _, finding, _ in after)
    assert ("ok", "clock: within 2 s of this host's", "") in after


def test_a_database_is_examined_once_it_has_the_tables() -> None:
    with PostgreSQL() as server:
        url = server.create_database()
        before = _about_the_store(_with_store(url))
        asyncio.run(_upgrade(url))
        after = _about_the_store(_with_store(url))

    ((level, finding, remedy),) = before
    assert (level, remedy) == ("problem", "taskmq store upgrade, with the taskmq that the app runs")
    assert "taskmq store upgrade" in finding
    assert any("days ahead" in finding or "no partition" in finding for _, finding, _ in after)
    assert not [finding for level, finding, _ in after if level == "problem"]


async def _upgrade(url: str) -> None:
    async with TaskMQ(new_url(), store=url) as app:
        store = app.sessions.store()
        assert isinstance(store, Upgradable)
        await store.upgrade()


@pytest.mark.parametrize("url", ["postgresql://me:S3CRET@127.0.0.1:1/none"])
def test_an_unreachable_store_is_a_finding(url: str) -> None:
    examination = asyncio.run(examine(_with_store(url)))

    assert not examination.is_complete
    assert examination.findings[-1].about == "store"
    assert "S3CRET" not in str(examination.findings)
