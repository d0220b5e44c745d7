"""Queues of priority classes and of dead letters, declared when a message first needs them."""

import asyncio
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Subscription
from taskmq.errors import QueueMissing, Unroutable
from taskmq.model.topology import UNROUTABLE, WorkQueue, dead_letter_queue, jobs_queue, parcels_queue
from taskmq.operations.dead_letters import browse
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import Inbox, bodies
from taskmq.testing.runner import case, eventually, raises
from taskmq_local import open_memory_state
from taskmq_rabbitmq.broker import RabbitMQBroker
from taskmq_rabbitmq.model.entities import Queue, queues_on_demand, work_queue
from taskmq_rabbitmq.model.url import parse_url
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

ORDERS = WorkQueue("orders")
DEAD = dead_letter_queue("orders")
CLASSES = ("orders.p.high", "orders.p.low")
STORED = (jobs_queue("orders"), parcels_queue("orders"))
NEVER = 3600.0


class OnDemandCase(RabbitMQCase):
    """A worker that polls for new queues every `watch_seconds`."""

    watch_seconds = NEVER

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        assert self.process_url is not None
        url = self.process_url
        if name == CUT_OFF:
            url = url.replace(f":{self.server.port}", f":{self.proxy.port}")
        url += f"?management={self.management}"
        return RabbitMQBroker(parse_url(url), BrokerOptions(), watch_seconds=self.watch_seconds)

    @property
    def management(self) -> str:
        api = urlsplit(self.server.management_url)
        return f"http://{api.hostname}:{api.port}"

    def without_rights(self) -> RabbitMQBroker:
        """Open a broker without permission to declare."""
        url = f"{self.process_url}?declare=off&management={self.management}"
        broker = RabbitMQBroker(parse_url(url), BrokerOptions())
        self.opened.push_async_callback(broker.aclose)
        return broker

    async def names(self) -> set[str]:
        found: list[dict[str, Any]] = await self.http("GET", "queues/{vhost}?disable_stats=true")
        return {each["name"] for each in found if not each["name"].startswith("taskmq.")}

    async def worker(self, queue: WorkQueue = ORDERS, *, name: str = "", listens: bool = True) -> Inbox:
        """Start a consumer of all physical queues; return its messages."""
        broker = self.broker(name)
        await broker.declare([queue])
        inbox, consumer = await self.consume(broker, *queue.physical)
        assert consumer.healthy
        if listens:
            await broker.listen(["worker.command.*"], lambda _topic, _body: None)
        return inbox

    async def producer(self, queue: WorkQueue = ORDERS) -> RabbitMQBroker:
        broker = self.broker()
        await broker.declare([queue])
        return broker


class TestDeclaring(OnDemandCase):
    @case
    async def test_a_queue_is_declared_without_its_optional_parts(self) -> None:
        await self.producer()
        await self.worker()

        assert await self.names() == {"orders"}

    @case
    async def test_a_queue_that_dead_letters_by_itself_has_its_letters_from_the_start(self) -> None:
        await self.producer(WorkQueue("orders", delivery_limit=3))

        assert await self.names() == {"orders", DEAD}

    @pytest.mark.nightly("tests/integration/test_rabbitmq_queues_on_demand.py::test_apply_creates_all_parts")
    @case
    async def test_all_shards_exist_from_the_start(self) -> None:
        await self.producer(WorkQueue("orders", ordered=2))

        assert await self.names() == {"orders.s00", "orders.s01"}

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_queues_on_demand.py::test_parts_declared_later_are_neither_missing_nor_different"
    )
    @case
    async def test_parts_declared_later_equal_those_once_declared_at_once(self) -> None:
        producer = await self.producer()
        for queue in (*CLASSES, *STORED, DEAD):
            await self.send(producer, queue, "one")

        # It is refused if anything is different.
        comparison = await producer.topology([ORDERS]).compare()

        assert {entry.status for entry in comparison.entries if "orders" in entry.name} == {"same"}


class TestConsuming(OnDemandCase):
    @case
    async def test_a_running_worker_gets_the_first_message_of_a_class_at_once(self) -> None:
        inbox = await self.worker()
        producer = await self.producer()

        for queue in CLASSES:
            await self.send(producer, queue, queue)
            (came,) = await inbox.take_and_ack(1)

            # It was notified: it never polls.
            assert (came.queue, came.body.decode()) == (queue, queue)

    @case
    async def test_the_first_delayed_message_of_a_class_arrives(self) -> None:
        inbox = await self.worker()
        producer = await self.producer()

        await producer.publish(message(CLASSES[1], "later", due=int(time.time() * 1000) + 300), timeout=10)

        (came,) = await inbox.take_and_ack(1)
        assert came.queue == CLASSES[1]

    @case
    async def test_the_first_messages_of_a_class_keep_their_order(self) -> None:
        inbox = await self.worker()
        producer = await self.producer()
        texts = [str(number) for number in range(1500)]

        first = [producer.publish(message(CLASSES[0], text), timeout=20) for text in texts[:500]]
        # Later ones arrive while the queue is being declared.
        await producer.stats(["orders"])
        rest = [producer.publish(message(CLASSES[0], text), timeout=20) for text in texts[500:]]
        for future in (*first, *rest):
            await future

        assert bodies(await inbox.take_and_ack(len(texts))) == texts

    @case
    async def test_a_queue_declared_before_its_worker_listens_is_consumed(self) -> None:
        broker, sender = self.broker(), self.broker()
        await broker.declare([ORDERS])
        await sender.declare([ORDERS])
        inbox, _ = await self.consume(broker, *ORDERS.physical)
        await self.send(sender, STORED[0], "first")

        await broker.listen(["worker.command.*"], lambda _topic, _body: None)

        assert bodies(await inbox.take_and_ack(1)) == ["first"]

    @case
    async def test_a_starting_worker_finds_existing_classes(self) -> None:
        producer = await self.producer()
        await self.send(producer, CLASSES[0], "one")

        inbox = await self.worker(listens=False)

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_an_announcement_missed_during_an_outage_is_found_afterwards(self) -> None:
        inbox = await self.worker(name=CUT_OFF)
        producer = await self.producer()
        self.proxy.refuse(True)
        self.proxy.cut()
        await self.send(producer, CLASSES[0], "one")
        self.proxy.refuse(False)

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_a_class_declared_while_its_queue_is_paused_is_consumed_after_the_resume(self) -> None:
        broker, producer = self.broker(), await self.producer()
        await broker.declare([ORDERS])
        inbox, consumer = await self.consume(broker, *ORDERS.physical)
        await consumer.pause(CLASSES[0])
        await self.send(producer, CLASSES[0], "one")
        assert consumer.healthy

        await consumer.resume(CLASSES[0])

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_apply_notifies_workers_of_created_queues(self) -> None:
        inbox = await self.worker()
        operator = self.broker()

        await operator.topology([ORDERS]).create_missing()
        stranger = self.broker()
        await self.send(stranger, CLASSES[0], "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]


class TestPolling(OnDemandCase):
    watch_seconds = 0.2

    @case
    async def test_a_worker_without_notifications_finds_a_new_class_at_its_next_poll(self) -> None:
        inbox = await self.worker(listens=False)
        producer = await self.producer()

        await self.send(producer, CLASSES[0], "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_queues_on_demand.py::test_a_worker_without_notifications_finds_a_new_class_at_its_next_poll"
    )
    @case
    async def test_a_class_declared_silently_by_others_is_found(self) -> None:
        inbox = await self.worker()
        for entity in queues_on_demand(ORDERS)[CLASSES[0]]:
            if isinstance(entity, Queue):
                body = {"durable": True, "arguments": dict(entity.arguments)}
                await self.http("PUT", f"queues/{{vhost}}/{entity.name}", body)

        await self.send(self.broker(), CLASSES[0], "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]


class TestLetters(OnDemandCase):
    @case
    async def test_the_first_dead_letter_creates_its_queue_and_bindings(self) -> None:
        worker = await self.producer()

        await self.send(worker, DEAD, "letter")

        await self.expect_ready(worker, DEAD, 1)
        found = await self.http("GET", "bindings/{vhost}/e/taskmq.dlx/q/orders.dlq")
        assert [each["routing_key"] for each in found] == ["orders"]

    @case
    async def test_an_endlessly_redelivered_message_dies_in_the_dead_letter_queue(self) -> None:
        broker = self.broker()
        await broker.declare([ORDERS])
        await broker.consume([Subscription("orders", 1)], lambda delivery: delivery.requeue())

        await self.send(broker, "orders", "poison")

        async def letters() -> int:
            return sum(entry.ready for entry in await broker.stats([DEAD]))

        if self.server.version < "4.3":
            await eventually(letters, 1, within=30)
            assert [entry.ready for entry in await broker.stats([UNROUTABLE])] == [0]

    @case
    async def test_a_queue_without_dead_jobs_has_no_letters_and_an_absent_one_is_missing(self) -> None:
        broker = await self.producer()

        assert await browse(broker, "orders", limit=10) == []
        with raises(QueueMissing) as errors:
            await browse(broker, "oders", limit=10)
        assert "'oders.dlq' does not exist" in str(errors[0])


class TestDelaysInTheState(OnDemandCase):
    @case
    async def test_a_worker_of_other_queues_creates_the_class_of_a_due_job(self) -> None:
        inbox = await self.worker()
        broker, state = self.broker(), open_memory_state(f"memory://{self.vhost}", BrokerOptions())
        session = Session(broker, state, send_timeout=10, delays=state.delays)
        relay = session.delay_relay()
        assert relay is not None
        await session.publish(message(CLASSES[0], "due", due=int(time.time() * 1000) + 50))

        running = asyncio.create_task(relay.run())
        (came,) = await inbox.take_and_ack(1)
        relay.stop()
        await running

        assert came.queue == CLASSES[0]


class TestWithoutPermissions(OnDemandCase):
    @contextmanager
    def warnings(self) -> Generator[list[str]]:
        lines: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger("taskmq_rabbitmq.publish.queue_repairs")
        log.addHandler(handler)
        try:
            yield lines
        finally:
            log.removeHandler(handler)

    @pytest.mark.parametrize("delay", [None, 300])
    def test_jobs_of_a_class_without_a_queue_go_to_the_queue_itself(self, delay: int | None) -> None:
        self.run(partial(self._expect_in_the_queue_itself, delay))

    async def _expect_in_the_queue_itself(self, delay: int | None) -> None:
        inbox = await self.worker()
        producer = self.without_rights()
        await producer.declare([ORDERS])
        due = None if delay is None else int(time.time() * 1000) + delay

        with self.warnings() as lines:
            for text in ("one", "two"):
                await producer.publish(message(CLASSES[0], text, due=due), timeout=10)

        came = await inbox.take_and_ack(2)
        assert [delivery.queue for delivery in came] == ["orders", "orders"]
        # Of delayed ones due at one instant, either may be the first.
        assert (bodies(came) if delay is None else sorted(bodies(came))) == ["one", "two"]
        assert len(lines) == 1
        assert "'orders.p.high' does not exist" in lines[0]
        assert "taskmq topology apply" in lines[0]

    @case
    async def test_a_newly_created_class_gets_its_jobs(self) -> None:
        inbox = await self.worker()
        limited, producer = self.without_rights(), await self.producer()
        await limited.declare([ORDERS])
        await self.send(limited, CLASSES[0], "before")
        await self.send(producer, CLASSES[0], "makes it")

        await self.send(limited, CLASSES[0], "after")

        places = {delivery.body.decode(): delivery.queue for delivery in await inbox.take_and_ack(3)}
        assert places == {"before": "orders", "makes it": CLASSES[0], "after": CLASSES[0]}

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_queues_on_demand.py::test_jobs_of_a_class_without_a_queue_go_to_the_queue_itself"
    )
    @case
    async def test_a_letter_replayed_into_a_class_without_a_queue_goes_to_the_queue_itself(self) -> None:
        inbox = await self.worker()
        stranger = self.broker()

        await self.send(stranger, CLASSES[0], "one")

        assert [delivery.queue for delivery in await inbox.take_and_ack(1)] == ["orders"]

    @case
    async def test_a_class_of_a_missing_queue_is_unroutable(self) -> None:
        with raises(Unroutable) as errors:
            await self.send(self.without_rights(), CLASSES[0], "one")
        assert "'orders' does not exist" in str(errors[0])

    @case
    async def test_a_worker_without_dead_letters_does_not_start(self) -> None:
        await self.producer()
        worker = self.without_rights()
        await worker.declare([ORDERS])

        with raises(QueueMissing) as errors:
            await worker.consume([Subscription("orders", 1)], self.inbox())
        assert "'orders.dlq' does not exist at the broker: run `taskmq topology apply`" in str(errors[0])


class TestPlan(OnDemandCase):
    @case
    async def test_parts_declared_later_are_neither_missing_nor_different(self) -> None:
        broker = await self.producer()

        comparison = await broker.topology([ORDERS]).compare()

        assert comparison.is_same
        later = [entry.name for entry in comparison.entries if entry.status == "later" and entry.kind == "queue"]
        assert sorted(later) == sorted((*CLASSES, *STORED, DEAD))

    @case
    async def test_apply_creates_all_parts(self) -> None:
        broker = await self.producer()

        await broker.topology([ORDERS]).create_missing()

        assert await self.names() == {"orders", *CLASSES, *STORED, DEAD}
        wanted = {entity.name for entity in work_queue(ORDERS) if isinstance(entity, Queue)}
        assert await self.names() == wanted

    @case
    async def test_parts_that_no_client_may_declare_are_missing(self) -> None:
        await self.producer()

        comparison = await self.without_rights().topology([ORDERS]).compare()

        missing = [entry.name for entry in comparison.entries if entry.status == "missing" and entry.kind == "queue"]
        assert sorted(missing) == sorted((*CLASSES, *STORED, DEAD))

    @case
    async def test_a_class_without_its_binding_is_incomplete(self) -> None:
        broker = await self.producer()
        await self.send(broker, CLASSES[0], "one")
        found = await self.http("GET", f"bindings/{{vhost}}/e/taskmq.delay.v2.deliver/q/{CLASSES[0]}")
        key = found[0]["properties_key"].replace("*", "%2A")
        await self.http("DELETE", f"bindings/{{vhost}}/e/taskmq.delay.v2.deliver/q/{CLASSES[0]}/{key}")

        comparison = await broker.topology([ORDERS]).compare()

        assert [entry.kind for entry in comparison.entries if entry.status == "missing"] == ["binding"]
