"""Announcements and listeners at RabbitMQ under faults."""

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import AccessDenied, SendError, TopologyMismatch
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.broadcasts import BroadcastInbox
from taskmq.testing.runner import case, eventually
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.rabbitmq_case import FreshVhostCase, OwnNodeCase, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

PASSWORD = "S3CRET"


async def heard_again(announcer: RabbitMQBroker, heard: BroadcastInbox, topic: str, *, within: float) -> None:
    """Wait until a new announcement is heard."""

    async def is_heard() -> bool:
        announcer.announce(topic, b"")
        return any(each == topic for each, _ in heard.heard)

    await eventually(is_heard, expected=True, within=within)


class TestListenersQueue(RabbitMQCase):
    async def listeners(self) -> list[dict[str, Any]]:
        queues = await self.http("GET", "queues/{vhost}")
        return [queue for queue in queues if queue["name"].startswith("taskmq.listener.")]

    @case
    async def test_a_broadcast_queue_is_exclusive_bounded_and_gone_with_its_listener(self) -> None:
        broker = self.broker()
        listening = await broker.listen(["a.#", "b"], BroadcastInbox(self.patience))

        async def find_queues() -> list[dict[str, Any]]:
            return [queue for queue in await self.listeners() if queue.get("arguments")]

        async def count() -> int:
            return len(await find_queues())

        await eventually(count, 1, within=self.patience)
        (queue,) = await find_queues()
        assert queue["exclusive"]
        assert not queue["durable"]
        assert queue["arguments"] == {
            "x-queue-type": "classic",
            "x-max-length": 10_000,
            "x-max-length-bytes": 64 * 2**20,
            "x-overflow": "drop-head",
        }

        await listening.stop()

        await eventually(count, 0, within=self.patience)

    @case
    async def test_a_listener_with_a_deleted_queue_creates_another_one(self) -> None:
        broker, announcer = self.broker(), self.broker()
        heard = BroadcastInbox(self.patience)
        await broker.listen(["#"], heard)

        async def delete() -> int:
            queues = await self.listeners()
            for queue in queues:
                # Through the HTTP API nobody may delete an exclusive queue.
                await asyncio.to_thread(self.server.ctl, "delete_queue", "-p", self.vhost, queue["name"])
            return len(queues)

        await eventually(delete, 1, within=self.patience)

        await heard_again(announcer, heard, "again", within=self.patience)

    @case
    async def test_the_exchange_is_part_of_the_plan_and_listeners_are_not_leftovers(self) -> None:
        broker = self.broker()
        await broker.listen(["#"], BroadcastInbox(self.patience))
        topology = broker.topology([WorkQueue("q")])
        await topology.create_missing()

        async def is_as_planned() -> bool:
            comparison = await topology.compare()
            return comparison.is_same and not any(entry.status == "extra" for entry in comparison.entries)

        await eventually(is_as_planned, expected=True, within=self.patience)
        entries = [entry.name for entry in (await topology.compare()).entries]
        assert "taskmq.events" in entries

    @case
    async def test_an_unheard_announcement_is_neither_persistent_nor_returned(self) -> None:
        broker = self.broker()
        await broker.connect(timeout=self.patience)
        assert broker.announce("nobody.listens", b"{}")
        heard = BroadcastInbox(self.patience)
        await broker.listen(["#"], heard)
        assert broker.announce("end", b"{}")

        assert await heard.take_until("end") == ["end"]


class TestPlainWire(RabbitMQCase):
    options = "?wire=plain"

    @case
    async def test_pika_alone_announces_and_listens_too(self) -> None:
        broker = self.broker()
        heard = BroadcastInbox(self.patience)
        await broker.listen(["a.*"], heard)

        broker.announce("a.b", b"1" * 300_000)
        broker.announce("a.c", b"")

        assert await heard.take_until("a.c") == ["a.b", "a.c"]
        assert len(heard.heard[0][1]) == 300_000


class TestNothingDeclared(FreshVhostCase):
    """Brokers with `?declare=off` and without the exchange."""

    options = "?declare=off"

    @case
    async def test_a_listener_is_told_what_is_missing(self) -> None:
        with pytest.raises(TopologyMismatch, match="taskmq topology apply"):
            await self.broker().listen(["#"], BroadcastInbox(self.patience))

    @case
    async def test_announcing_is_given_up_for_a_while_and_publishing_continues(self) -> None:
        assert self.process_url is not None
        declaring = open_broker(self.process_url.partition("?")[0], BrokerOptions())
        await declaring.declare([WorkQueue("q")])
        await declaring.aclose()
        # As left by an older version.
        await self.http("DELETE", "exchanges/{vhost}/taskmq.events")
        broker = self.broker()
        messages = _Messages()
        _log.addHandler(messages)
        try:
            await broker.connect(timeout=self.patience)

            async def is_dropped() -> bool:
                return not broker.announce("a", b"")

            await eventually(is_dropped, expected=True, within=self.patience)
            await self.send(broker, "q", "one")
        finally:
            _log.removeHandler(messages)

        assert len(messages.texts) == 1
        assert "events are not published, tasks continue" in messages.texts[0]
        assert "no exchange 'taskmq.events'" in messages.texts[0]


class TestDenied(RabbitMQCase):
    async def user(self, configure: str, write: str, read: str) -> RabbitMQBroker:
        """Open a broker with these permissions."""
        name = f"user-{self.vhost}"
        await self.http("PUT", f"users/{quote(name, safe='')}", {"password": PASSWORD, "tags": ""})
        rights = {"configure": configure, "write": write, "read": read}
        await self.http("PUT", f"permissions/{{vhost}}/{quote(name, safe='')}", rights)
        vhost = quote(self.vhost, safe="")
        url = f"amqp://{quote(name, safe='')}:{PASSWORD}@127.0.0.1:{self.server.port}/{vhost}?declare=off"
        broker = open_broker(url, BrokerOptions(name="denied"))
        self.opened.push_async_callback(broker.aclose)
        assert isinstance(broker, RabbitMQBroker)
        return broker

    async def prepare(self) -> RabbitMQBroker:
        """Open a broker with all permissions, once queue and exchange exist."""
        able = self.broker()
        await able.declare([WorkQueue("q")])
        await able.listen(["none"], BroadcastInbox(self.patience))
        return able

    @case
    async def test_a_producer_forbidden_to_announce_still_publishes_and_listens(self) -> None:
        able = await self.prepare()
        denied = await self.user(r"^taskmq\.listener\..*$", r"^(taskmq|q|taskmq\.listener\..*)$", ".*")
        heard = BroadcastInbox(self.patience)
        await denied.listen(["#"], heard)

        async def is_dropped() -> bool:
            return not denied.announce("denied", b"")

        await eventually(is_dropped, expected=True, within=self.patience)
        await self.send(denied, "q", "one")
        able.announce("allowed", b"")

        assert await heard.take_until("allowed") == ["allowed"]

    @case
    async def test_a_producer_forbidden_to_listen_is_told_so_and_still_publishes(self) -> None:
        await self.prepare()
        denied = await self.user("^$", "^(taskmq|q)$", "^q$")

        with pytest.raises(AccessDenied, match="permission"):
            await denied.listen(["#"], BroadcastInbox(self.patience))

        await self.send(denied, "q", "one")

    @case
    async def test_the_permissions_of_a_worker_suffice_and_a_producer_cannot_command(self) -> None:
        able = await self.prepare()
        heard = BroadcastInbox(self.patience)
        await able.listen(["#"], heard)
        queues = [WorkQueue("q")]

        request = able.topology(queues).permissions("worker", user="x").request
        assert request is not None
        worker = await self.user(**_rights(request))
        own = BroadcastInbox(self.patience)
        await worker.listen(["worker.command.*"], own)
        worker.announce("worker.command.a", b"")
        await own.take_until("worker.command.a")
        await worker.aclose()

        request = able.topology(queues).permissions("producer", user="x").request
        assert request is not None
        producer = await self.user(**_rights(request))

        async def is_dropped() -> bool:
            return not producer.announce("worker.command.drain", b"")

        await eventually(is_dropped, expected=True, within=self.patience)
        able.announce("end", b"")
        assert await heard.take_until("end") == ["worker.command.a", "end"]


@pytest.mark.timeout(150)
class TestOutages(OwnNodeCase):
    deadline = 120

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_broadcasting.py::test_a_listener_with_a_deleted_queue_creates_another_one"
    )
    @case
    async def test_a_listener_and_an_announcer_return_after_a_restart_of_the_broker(self) -> None:
        announcer, listener = self.broker(), self.broker()
        heard = BroadcastInbox(self.patience)
        await listener.listen(["#"], heard)
        announcer.announce("before", b"")
        await heard.take_until("before")

        await asyncio.to_thread(self.server.restart)

        await heard_again(announcer, heard, "again", within=60)


@pytest.mark.timeout(150)
class TestAlarms(RabbitMQCase):
    deadline = 120

    @case
    async def test_announcements_are_dropped_while_the_broker_is_blocked_and_delay_nothing(self) -> None:
        broker = self.broker()
        await broker.declare([WorkQueue("q")])
        heard = BroadcastInbox(self.patience)
        await broker.listen(["#"], heard)
        await self.send(broker, "q", "before")

        async with self.alarm("disk"):
            # Only a publisher is told that the broker accepts nothing.
            with pytest.raises(SendError, match="takes no messages"):
                await broker.publish(message("q", "blocked"), timeout=3)

            assert not any(broker.announce("news", b"x" * 1_000) for _ in range(10_000))

        await heard_again(broker, heard, "after", within=30)
        assert "news" not in [topic for topic, _ in heard.heard]
        await self.send(broker, "q", "after")


_log = logging.getLogger("taskmq_rabbitmq.publish.broadcast")


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _rights(request: Any) -> dict[str, str]:
    return {name: str(value) for name, value in request["body"].items()}
