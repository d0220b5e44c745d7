"""Messages moved to another queue: each goes where a send would put it, and none is lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from taskmq import InvalidOption, QueueMissing, TaskMQ, WorkQueue
from taskmq.cli.operator import OperatorApi
from taskmq.contracts.broker import Outgoing
from taskmq.errors import BrokerUnavailable
from taskmq.model.envelope import JSON, decode_envelope
from taskmq.model.topology import jobs_queue
from taskmq.operations.queue_moves import Moved, move_messages
from taskmq.operations.queues import list_queues, purge_queue
from taskmq.testing import FlakyBroker
from taskmq.testing.broker_suite.case import peek
from tests.unit.app_kit import new_url


@pytest.fixture
def app() -> TaskMQ:
    app = TaskMQ(
        new_url(),
        queues=[
            WorkQueue("lanes", lanes=4),
            WorkQueue("ordered", ordered=4),
            WorkQueue("native", priorities="native"),
            WorkQueue("photos"),
        ],
    )

    @app.task(name="resize", queue="images")
    def resize(number: int) -> None: ...

    @app.task(name="upload", queue="images")
    def upload(number: int) -> None: ...

    return app


def _run(app: TaskMQ, use: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with app:
            await app.sessions.current().declare(app.tasks.queues)
            await use()

    asyncio.run(main())


async def _ready(app: TaskMQ, name: str) -> dict[str, int]:
    """Return the messages in a part of a queue."""
    found = await app.sessions.current().broker.stats(app.producer.queue(name).physical)
    return {stats.queue: stats.ready for stats in found if stats.ready}


async def _ids(app: TaskMQ, physical: str) -> list[str]:
    """Return the jobs in a part of a queue in order."""
    async with peek(app.sessions.current().broker, physical, limit=100) as found:
        return [decode_envelope(each.body, each.content_type).id for each in found]


def test_messages_keep_their_class_and_their_order(app: TaskMQ) -> None:
    async def test() -> None:
        for number in range(5):
            await app.tasks["resize"].asend(number)
        await app.tasks["resize"].options(priority=9).asend(7)

        before = await _ids(app, "images")

        assert await move_messages(app, "images", "photos") == Moved(6, 0)

        assert await _ready(app, "images") == {}
        assert await _ready(app, "photos") == {"photos": 5, "photos.p.high": 1}
        assert await _ids(app, "photos") == before

    _run(app, test)


def test_a_limited_number_of_messages_of_one_task_is_moved(app: TaskMQ) -> None:
    async def test() -> None:
        for number in range(4):
            await app.tasks["resize"].asend(number)
            await app.tasks["upload"].asend(number)

        assert await move_messages(app, "images", "photos", count=3) == Moved(3, 0)
        assert await _ready(app, "images") == {"images": 5}
        assert await move_messages(app, "images", "photos", task="up*") == Moved(3, 0)
        assert await _ready(app, "images") == {"images": 2}
        assert await _ready(app, "photos") == {"photos": 6}

    _run(app, test)


def test_messages_of_lanes_go_to_the_lanes_of_their_tenants_and_back(app: TaskMQ) -> None:
    async def test() -> None:
        for tenant in ("north", "south", "east"):
            await app.tasks["resize"].options(queue="lanes", tenant=tenant).asend(1)
        before = await _ready(app, "lanes")

        assert await move_messages(app, "lanes", "photos") == Moved(3, 0)
        assert await _ready(app, "lanes") == {}
        assert await move_messages(app, "photos", "lanes") == Moved(3, 0)

        assert await _ready(app, "lanes") == before

    _run(app, test)


def test_messages_that_the_other_queue_cannot_take_stay_in_place(app: TaskMQ) -> None:
    async def test() -> None:
        await app.tasks["resize"].asend(1)
        await app.tasks["resize"].options(queue="ordered", order_key="a").asend(2)
        broker = app.sessions.current().broker
        await broker.publish(Outgoing(queue="images", body=b"{", content_type=JSON, job_id="", task=""), timeout=5)

        assert await move_messages(app, "images", "ordered") == Moved(0, 2)
        assert await move_messages(app, "ordered", "images") == Moved(0, 1)

        assert (await _ready(app, "images"), sum((await _ready(app, "ordered")).values())) == ({"images": 2}, 1)

    _run(app, test)


def test_jobs_of_the_store_are_not_moved(app: TaskMQ) -> None:
    async def test() -> None:
        session = app.sessions.current()
        invitation = Outgoing(queue=jobs_queue("images"), body=b"{}", content_type=JSON, job_id="1", task="resize")
        await session.declare_and_publish(app.producer.queue("images"), invitation)

        assert await move_messages(app, "images", "photos") == Moved()

        assert await _ready(app, "images") == {jobs_queue("images"): 1}

    _run(app, test)


def test_missing_queues_and_the_same_queue_are_refused(app: TaskMQ) -> None:
    async def test() -> None:
        await app.tasks["resize"].asend(1)
        with pytest.raises(InvalidOption, match="to itself"):
            await move_messages(app, "images", "images")
        with pytest.raises(QueueMissing, match="imagse"):
            await move_messages(app, "imagse", "photos")
        with pytest.raises(QueueMissing, match="photso"):
            await move_messages(app, "images", "photso")
        assert await _ready(app, "images") == {"images": 1}

    _run(app, test)


def test_a_message_the_broker_refuses_keeps_its_position(app: TaskMQ) -> None:
    async def test() -> None:
        for number in range(5):
            await app.tasks["resize"].asend(number)
        before = await _ids(app, "images")
        session = app.sessions.current()
        flaky = FlakyBroker(session.broker)
        session.broker = flaky
        flaky.fail_publishes(2, BrokerUnavailable("it is gone"))

        with pytest.raises(BrokerUnavailable) as raised:
            await move_messages(app, "images", "photos")

        assert raised.value.__notes__ == ["3 messages were moved before"]
        assert await _ids(app, "images") == before[:2]
        assert await _ids(app, "photos") == before[2:]
        assert await move_messages(app, "images", "photos") == Moved(2, 0)

    _run(app, test)


@pytest.mark.real_time
@pytest.mark.parametrize("lanes", [None, 2])
async def test_former_lanes_of_a_queue_are_listed_moved_and_purged(lanes: int | None) -> None:
    url = new_url()
    before = TaskMQ(url, queues=[WorkQueue("mail", lanes=8), WorkQueue("other")])
    after = TaskMQ(url, queues=[WorkQueue("mail", lanes=lanes), WorkQueue("other")])
    tenants = [f"tenant-{number}" for number in range(40)]

    @before.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    async with before, after:
        for tenant in tenants:
            await send.options(tenant=tenant).asend(1)
        report = await OperatorApi(after).queues.get("mail", within=0.01)
        listed = (await list_queues(after, ["mail"])).queues
        moved = await move_messages(after, "mail", "other", count=10)
        purged = await purge_queue(after, "mail")
        left = await OperatorApi(after).queues.get("mail", within=0.01)

    assert report.ready == 40
    if lanes is not None:
        assert sum(stats.ready for stats in listed) == 40
    assert (moved, purged, left.ready) == (Moved(10, 0), 30, 0)
