import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from taskmq import InvalidOption, QueueMissing, TaskMQ, WorkQueue
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Outgoing, QueueStats
from taskmq.model.envelope import JSON
from taskmq.model.topology import jobs_queue
from taskmq.operations.queues import list_queues, missing_queue, purge_queue
from taskmq_local import open_memory_broker
from tests.unit.app_kit import new_url, use_session

pytestmark = pytest.mark.real_time


@pytest.fixture
def app() -> TaskMQ:
    app = TaskMQ(new_url(), queues=[WorkQueue("mail", priorities="native")])

    @app.task(name="resize", queue="images")
    def resize(number: int) -> None: ...

    return app


async def test_queues_are_listed_with_their_dead_letters_and_unroutable_messages(app: TaskMQ) -> None:
    async with app:
        await app.sessions.current().declare(app.tasks.queues)
        await app.tasks["resize"].options(priority=9).asend(1)
        found = {stats.queue: stats.ready for stats in (await list_queues(app)).queues}
        named = [stats.queue for stats in (await list_queues(app, ["mail"])).queues]

    assert found["images.p.high"] == 1
    assert {"images", "images.dlq", "mail", "mail.dlq", "taskmq.parking", "taskmq.unroutable"} <= set(found)
    shared = ["taskmq.parking", "taskmq.unroutable"]
    assert named == ["mail", "mail.jobs", "mail.parcels", "mail.dlq", *shared]


class _Reticent:
    """A broker that does not count delayed messages."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        return [replace(each, delayed=None) for each in await self._broker.stats(queues)]


async def test_the_number_of_delayed_messages_is_unknown_if_the_broker_hides_it(app: TaskMQ) -> None:
    broker: Any = _Reticent(open_memory_broker(new_url(), BrokerOptions(name="reticent")))
    use_session(app, lambda: Session(broker, None, send_timeout=5.0))

    async with app:
        await app.sessions.current().declare(app.tasks.queues)

        assert (await list_queues(app)).delayed is None


def test_a_call_without_a_queue_asks_for_one() -> None:
    with pytest.raises(InvalidOption, match="no queues given"):
        asyncio.run(list_queues(TaskMQ(new_url())))


@pytest.mark.parametrize("name", ["a\nb", "orders.*", "", ">orders"])
async def test_a_name_that_no_queue_can_have_is_refused_before_the_broker_is_asked(name: str) -> None:
    async with TaskMQ("amqp://127.0.0.1:1", send_timeout="1s") as app:
        with pytest.raises(InvalidOption, match="queue name"):
            await list_queues(app, ["mail", name])


async def test_parts_of_queues_are_listed_by_their_own_names(app: TaskMQ) -> None:
    async with app:
        await app.sessions.current().declare(app.tasks.queues)
        found = [stats.queue for stats in (await list_queues(app, ["images.p.high", "taskmq.parking"])).queues]
        with pytest.raises(InvalidOption, match=r"queue name 'none\.p\.high'"):
            await list_queues(app, ["none.p.high"])

    assert found[:2] == ["images.p.high", "taskmq.parking"]


async def test_invitations_to_stored_jobs_are_not_purged(app: TaskMQ) -> None:
    async with app:
        await app.tasks["resize"].asend(1)
        session = app.sessions.current()
        invitation = Outgoing(queue=jobs_queue("images"), body=b"{}", content_type=JSON, job_id="1", task="resize")
        await session.declare_and_publish(app.producer.queue("images"), invitation)

        assert await purge_queue(app, "images") == 1

        (left,) = await session.broker.stats([jobs_queue("images")])
        assert left.ready == 1


async def test_purging_empties_all_classes_of_a_queue(app: TaskMQ) -> None:
    async with app:
        for priority in (0, 5, 9):
            await app.tasks["resize"].options(priority=priority).asend(1)
        assert await purge_queue(app, "images") == 3
        assert await purge_queue(app, "images") == 0
        with pytest.raises(QueueMissing):
            await purge_queue(app, "imags")


def test_a_queue_of_the_app_is_not_suggested_instead_of_itself(app: TaskMQ) -> None:
    assert missing_queue(app, "images").hint == "the app defines it; its first worker or message declares it"
    assert missing_queue(app, "imagse").hint == "did you mean 'images'?"
