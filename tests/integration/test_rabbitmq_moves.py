"""Messages in a RabbitMQ queue are moved to another one, and none is lost."""

from uuid import uuid4

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.model.envelope import decode_envelope
from taskmq.operations.queue_moves import Moved, move_messages
from taskmq.testing.broker_suite.case import peek

pytestmark = pytest.mark.rabbitmq


@pytest.mark.real_time
@pytest.mark.parametrize("wire", ["fast", "plain"])
async def test_messages_are_moved_in_order_and_by_their_priority(amqp_url: str, wire: str) -> None:
    origin, other = f"move-{uuid4().hex}", f"move-{uuid4().hex}"
    app = TaskMQ(f"{amqp_url}?wire={wire}", queues=[WorkQueue(origin), WorkQueue(other)])

    @app.task(name="resize", queue=origin)
    def resize(number: int) -> None: ...

    async def ids(queue: str) -> list[str]:
        async with peek(app.sessions.current().broker, queue, limit=1_000) as found:
            return [decode_envelope(each.body, each.content_type).id for each in found]

    async with app:
        broker = app.sessions.current().broker
        await app.sessions.current().declare(app.tasks.queues)
        await resize.asend_many([(number,) for number in range(450)])
        await resize.options(priority=9).asend(7)
        before = await ids(origin)

        assert await move_messages(app, origin, other, count=300) == Moved(300, 0)
        assert await move_messages(app, origin, other) == Moved(151, 0)

        assert await ids(other) == before
        assert await ids(origin) == []
        for name in (origin, other):
            for part in await broker.stats(app.producer.queue(name).physical):
                await broker.purge(part.queue)
