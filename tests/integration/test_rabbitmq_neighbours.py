"""The claims of docs/console.md about taps, the firehose, and RabbitMQ's shovels and federation, on a real node."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ
from tests.servers.waiting import until

pytestmark = [
    pytest.mark.nightly("tests/e2e/test_foreign_clients.py"),
    pytest.mark.rabbitmq,
    pytest.mark.real_time,
    pytest.mark.timeout(180),
]

_PLUGINS = ("rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_federation", "rabbitmq_federation_management")


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitMQ]:
    with RabbitMQ(os.environ.get("TASKMQ_TEST_RABBITMQ"), plugins=_PLUGINS) as node:
        yield node


class Place:
    """A virtual host with an app and a record of its runs."""

    def __init__(self, node: RabbitMQ) -> None:
        self.node = node
        self.url = node.create_vhost()
        self.vhost = urlsplit(self.url).path.removeprefix("/")
        self.ran: list[str] = []

    def app(self) -> TaskMQ:
        at = urlsplit(self.node.management_url)
        url = f"{self.url}?management=http://{at.hostname}:{at.port}"
        app = TaskMQ(url, name="shop", queues=[WorkQueue("orders")])

        @app.task(name="charge", queue="orders")
        async def charge(name: str) -> None:
            self.ran.append(name)

        return app

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TaskMQ]:
        async with self.app() as app:
            await app.sessions.current().declare([WorkQueue("orders")])
            yield app

    async def http(self, method: str, path: str, body: object = None) -> Any:
        path = f"/api/{path.replace('{vhost}', quote(self.vhost, safe=''))}"
        return await asyncio.to_thread(self.node.http, method, path, body)

    async def run_until(self, app: TaskMQ, *names: str) -> None:
        while not set(names) <= set(self.ran):
            await Worker(app, WorkerConfig(burst=True)).run()


@pytest.fixture
def here(node: RabbitMQ) -> Iterator[Place]:
    place = Place(node)
    yield place
    node.delete_vhost(place.url)


@pytest.fixture
def other_place(node: RabbitMQ) -> Iterator[Place]:
    place = Place(node)
    yield place
    node.delete_vhost(place.url)


async def findings_of(app: TaskMQ) -> list[str]:
    broker = app.sessions.current().broker
    assert isinstance(broker, RabbitMQBroker)
    return [f"{each.about}: {each.finding}" for each in await broker.diagnose({WorkQueue("orders"): 1.0})]


async def test_a_tap_under_the_name_of_a_queue_hides_its_deletion(here: Place) -> None:
    async with here.open() as app:
        with Raw(here.url) as raw:
            raw.channel.queue_declare("tap", durable=True)
            raw.channel.queue_bind("tap", "taskmq", "orders")
            await app.tasks["charge"].asend("seen")
            assert (raw.ready("orders"), raw.ready("tap")) == (1, 1)
            found = await findings_of(app)
            raw.channel.queue_delete("orders")

            # A confirm, and no return: RabbitMQ has routed it only to the tap.
            await app.tasks["charge"].asend("lost")

            assert raw.ready("tap") == 2
        assert any("taskmq -> tap [orders]" in finding for finding in found), found


async def test_the_firehose_shows_each_job_and_hides_no_deleted_queue(here: Place) -> None:
    async with here.open() as app:
        with Raw(here.url) as raw:
            await here.http("PUT", "vhosts/{vhost}", {"tracing": True})
            raw.channel.queue_declare("seen", durable=True)
            raw.channel.queue_bind("seen", "amq.rabbitmq.trace", "publish.taskmq")
            await app.tasks["charge"].asend("one")

            copy = raw.take("seen")

            assert copy.properties.headers["routing_keys"] == ["orders"]
            assert copy.properties.headers["properties"]["type"] == "charge"
            assert not any("seen" in finding for finding in await findings_of(app))
            raw.channel.queue_delete("orders")

            # It is returned, so the queue is declared again for it.
            await app.tasks["charge"].asend("two")

            assert raw.ready("orders") == 1


async def test_a_custom_exchange_in_front_of_taskmq_copies_foreign_messages(here: Place) -> None:
    async with here.open() as app:
        with Raw(here.url) as raw:
            raw.channel.exchange_declare("shop.in", "fanout", durable=True)
            raw.channel.queue_declare("copies", durable=True)
            raw.channel.queue_bind("copies", "shop.in")
            raw.channel.exchange_bind("taskmq", "shop.in")
            raw.publish("shop.in", "orders", b'{"task": "charge", "args": ["foreign"]}')
            await here.run_until(app, "foreign")
            assert raw.ready("copies") == 1
            assert not any("binding that is not" in finding for finding in await findings_of(app))


async def test_a_shovel_moves_jobs_to_the_workers_of_another_broker(here: Place, other_place: Place) -> None:
    async with here.open() as sender, other_place.open() as receiver:
        job = await sender.tasks["charge"].options(tenant="north").asend("shovelled")
        shovel = {
            "src-protocol": "amqp091",
            "src-uri": here.url,
            "src-queue": "orders",
            "dest-protocol": "amqp091",
            "dest-uri": other_place.url,
            "dest-exchange": "taskmq",
            "dest-exchange-key": "orders",
            "ack-mode": "on-confirm",
        }
        await here.http("PUT", "parameters/shovel/{vhost}/away", {"value": shovel})
        with Raw(other_place.url) as raw:
            await until(lambda: raw.ready("orders") == 1)
            message = raw.get("orders")
            assert message is not None
            assert message.properties.message_id == job.id
            assert message.properties.headers["x-taskmq-tenant"] == "north"
            raw.channel.basic_nack(message.tag)
        await other_place.run_until(receiver, "shovelled")
        assert here.ran == []


async def test_a_federated_queue_gives_a_job_to_one_of_two_clusters(here: Place, other_place: Place) -> None:
    async with AsyncExitStack() as stack:
        sender, receiver = (
            await stack.enter_async_context(here.open()),
            await stack.enter_async_context(other_place.open()),
        )
        upstream = {"uri": here.url, "queue": "orders"}
        await other_place.http("PUT", "parameters/federation-upstream/{vhost}/here", {"value": upstream})
        policy = {"pattern": "^orders$", "definition": {"federation-upstream-set": "all"}, "apply-to": "queues"}
        await other_place.http("PUT", "policies/{vhost}/federated", policy)
        for number in range(5):
            await sender.tasks["charge"].asend(f"job {number}")

        # There is no worker here, so they go to a queue with one.
        working = asyncio.create_task(Worker(receiver, WorkerConfig()).run())
        await until(lambda: len(other_place.ran) == 5)
        working.cancel()
        await asyncio.wait({working})

        assert (here.ran, sorted(other_place.ran)) == ([], [f"job {number}" for number in range(5)])


async def test_a_federated_exchange_runs_each_job_in_both_clusters(here: Place, other_place: Place) -> None:
    async with here.open() as sender, other_place.open() as receiver:
        await other_place.http("PUT", "parameters/federation-upstream/{vhost}/here", {"value": {"uri": here.url}})
        policy = {
            "pattern": "^taskmq$",
            "definition": {"federation-upstream-set": "all"},
            "apply-to": "exchanges",
        }
        await other_place.http("PUT", "policies/{vhost}/federated", policy)

        async def is_linked() -> bool:
            links = await other_place.http("GET", "federation-links/{vhost}")
            return [link.get("status") for link in links] == ["running"]

        await until(is_linked)
        await sender.tasks["charge"].asend("twice")

        await here.run_until(sender, "twice")
        await other_place.run_until(receiver, "twice")
        assert here.ran == other_place.ran == ["twice"]
