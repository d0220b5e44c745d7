"""The view of an operator in RabbitMQ's console, with the requests of the console."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from taskmq import RetryPolicy, TaskMQ, WorkQueue
from taskmq.model.units import milliseconds_in
from taskmq.testing.runner import case
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq.model import delay_ladder as delay
from tests.integration.rabbitmq_case import RabbitMQCase

pytestmark = pytest.mark.rabbitmq

_NOW_MS = 1_790_000_000_000


class TestConsole(RabbitMQCase):
    def app(self) -> TaskMQ:
        app = TaskMQ(self.process_url, name="shop", queues=[WorkQueue("orders")])

        @app.task(name="shop.charge", queue="orders", retry=RetryPolicy(base="1h", max_attempts=2))
        async def charge(cents: int) -> None:
            raise ValueError(f"{cents} cents cannot be charged")

        @app.task(name="shop.refuse", queue="orders", retry=None)
        async def refuse() -> None:
            raise ValueError("no")

        return app

    async def look(self, queue: str) -> list[dict[str, Any]]:
        """Return the properties of waiting messages, as shown by the console's button *Get messages*."""
        body = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}
        found = await self.http("POST", f"queues/{{vhost}}/{quote(queue, safe='')}/get", body)
        return [message["properties"] for message in found]

    async def look_at_delayed(self) -> dict[str, Any]:
        """Return the properties of the only message that waits on the ladder, on its way up."""
        while True:
            for level in range(delay.LEVELS):
                for found in await self.look(delay.level_name(level)):
                    return found

    async def arguments(self, queue: str) -> dict[str, Any]:
        found = await self.http("GET", f"queues/{{vhost}}/{quote(queue, safe='')}")
        return dict(found["arguments"])

    @case
    async def test_a_job_has_its_task_id_tenant_and_priority_in_its_properties(self) -> None:
        async with self.app() as app:
            charge, refuse = app.tasks["shop.charge"], app.tasks["shop.refuse"]
            job = await charge.options(tenant="north", priority=8).asend(1250)
            plain = await refuse.asend()
        (urgent,) = await self.look("orders.p.high")
        (other,) = await self.look("orders")

        assert (urgent["type"], urgent["message_id"], urgent["app_id"]) == ("shop.charge", job.id, "taskmq")
        assert urgent["headers"]["x-taskmq-tenant"] == "north"
        assert urgent["headers"]["x-taskmq-job-priority"] == 8
        assert other["message_id"] == plain.id
        assert not {"x-taskmq-tenant", "x-taskmq-job-priority"} & other["headers"].keys()

    @case
    async def test_a_delayed_job_shows_its_due_time_and_its_queue(self) -> None:
        async with self.app() as app:
            await app.tasks["shop.charge"].options(tenant="north", priority=1, delay="35m").asend(1)
        waiting = await self.look_at_delayed()

        assert (milliseconds_in(waiting["headers"]["x-taskmq-eta"]) or 0) > _NOW_MS
        assert waiting["headers"]["x-taskmq-tenant"] == "north"
        assert waiting["headers"]["x-taskmq-job-priority"] == 1

    @case
    async def test_retries_and_dead_letters_show_their_reason_and_time(self) -> None:
        async with self.app() as app:
            await app.tasks["shop.charge"].options(tenant="north").asend(-1)
            await app.tasks["shop.refuse"].options(tenant="south").asend()
            await Worker(app, WorkerConfig(burst=True)).run()
        (letter,) = await self.look("orders.dlq")
        retry = await self.look_at_delayed()

        headers = letter["headers"]
        assert headers["x-taskmq-tenant"] == "south"
        assert (headers["x-taskmq-reason"], headers["x-taskmq-error"]) == ("error", "ValueError: no")
        assert (milliseconds_in(headers["x-taskmq-started"]) or 0) > _NOW_MS
        assert (milliseconds_in(headers["x-taskmq-started"]) or 0) <= (milliseconds_in(headers["x-taskmq-died"]) or 0)
        assert retry["headers"]["x-taskmq-attempt"] == 2
        assert retry["headers"]["x-taskmq-error"] == "ValueError: -1 cents cannot be charged"
        assert retry["headers"]["x-taskmq-tenant"] == "north"

    @case
    async def test_queues_name_their_owner_and_levels_their_contents(self) -> None:
        async with self.app() as app:
            await app.tasks["shop.charge"].options(priority=8).asend(1)
            await app.tasks["shop.refuse"].asend()
            await Worker(app, WorkerConfig(burst=True)).run()

        for queue in ("orders", "orders.p.high", "orders.dlq"):
            assert (await self.arguments(queue))["x-taskmq-app"] == "shop", queue
        assert "1:08:16" in (await self.arguments(delay.level_name(15)))["x-taskmq-about"]
        assert "dlq list" in (await self.arguments("taskmq.parking"))["x-taskmq-about"]

    @case
    async def test_a_queue_without_labels_or_of_another_app_is_used_unchanged(self) -> None:
        broker = self.broker()
        await broker.declare([WorkQueue("orders")])
        assert "x-taskmq-app" not in await self.arguments("orders")

        async with self.app() as app, TaskMQ(self.process_url, name="till", queues=[WorkQueue("orders")]) as other:
            await app.tasks["shop.charge"].asend(1)
            await other.sessions.current().declare([WorkQueue("orders")])
            await other.sessions.current().declare([WorkQueue("till")])

        assert "x-taskmq-app" not in await self.arguments("orders")
        assert (await self.arguments("till"))["x-taskmq-app"] == "till"
        comparison = await asyncio.wait_for(broker.topology([WorkQueue("till")]).compare(), 30)
        assert not [entry for entry in comparison.entries if entry.status == "different"]
