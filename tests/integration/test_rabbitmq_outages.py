"""Outages: silently dead connections, nodes that stop, are killed, or never answer, and alarms."""

import asyncio
import contextlib
import gc
import heapq
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.errors import BrokerBlocked, BrokerUnavailable, PublishUnknown
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, eventually, raises
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.rabbitmq_case import CUT_OFF, OwnNodeCase, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

FILES = Path("/proc/self/fd")
HEARTBEAT = 2
RECONNECTS = int(os.environ.get("TASKMQ_TEST_RECONNECTS", "8"))
BACK_WITHIN = 5.0


class TestNodesWithoutAnswer(RabbitMQCase):
    @case
    async def test_a_silent_node_that_accepts_connections_may_have_no_file_handles_left(self) -> None:
        broker = self.broker(CUT_OFF)
        self.proxy.stall(True)

        with raises(BrokerUnavailable) as errors:
            await broker.connect(timeout=0.3)

        said = str(errors[0])
        assert errors[0].is_unanswered
        assert "file handles" in said
        assert "LimitNOFILE" in said


class TestHalfOpenConnections(RabbitMQCase):
    options = f"?heartbeat={HEARTBEAT}"

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    @case
    async def test_silent_connections_are_found_within_two_heartbeats_and_consumers_return(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)

        self.proxy.strand()
        await self.until(lambda: not consumer.healthy)
        await self.until(lambda: consumer.healthy)

        assert "no sign of life" in self.log.text
        await self.send(other, queue, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_messages_published_into_a_dead_connection_are_published_again(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")

        self.proxy.strand()
        futures = [broker.publish(message(queue, str(number)), timeout=20) for number in range(100)]
        impatient = [broker.publish(message(queue, "impatient"), timeout=0.5) for _ in range(5)]
        await asyncio.wait([*futures, *impatient])

        assert {type(future.exception()) for future in impatient} == {PublishUnknown}
        assert [future.exception() for future in futures] == [None] * 100

    @case
    async def test_a_connection_with_garbage_is_given_up(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)
        await self.send(broker, queue, "one")
        await inbox.take(1)

        self.proxy.inject(bytes(range(256)), to_client=True)

        await self.until(lambda: "connection lost" in self.log.text)
        await self.until(lambda: consumer.healthy)
        await self.send(broker, queue, "two")
        assert bodies(await inbox.take_and_ack(2)) == ["one", "two"]

    @case
    async def test_a_quiet_connection_stays(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)

        await asyncio.sleep(3 * HEARTBEAT)

        assert consumer.healthy
        assert "connection lost" not in self.log.text
        await self.send(other, queue, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]


class TestNodeLists(RabbitMQCase):
    @case
    async def test_a_dead_node_costs_nothing(self) -> None:
        self.proxy.refuse(True)
        for _ in range(5):
            broker = self.open_listed(self.proxy.port, self.proxy.port, self.server.port)
            await broker.connect(timeout=10)
            assert " open generation=" in repr(broker)

    @case
    async def test_a_node_that_never_answers_costs_one_attempt(self) -> None:
        with black_hole() as port:
            brokers = [self.open_listed(port, self.server.port) for _ in range(6)]
            await asyncio.gather(*(broker.connect(timeout=15) for broker in brokers))
            assert all(" open generation=" in repr(broker) for broker in brokers)

    @case
    async def test_a_consumer_of_a_stopped_node_moves_to_the_next(self) -> None:
        owner = self.broker()
        queue = await self.queue(owner)
        with black_hole() as port:
            broker = self.open_listed(self.proxy.port, port, self.server.port)
            inbox, consumer = await self.consume(broker, queue)
            self.proxy.refuse(True)
            self.proxy.cut()

            await self.send(owner, queue, "one")
            assert bodies(await inbox.take_and_ack(1)) == ["one"]
            assert consumer.healthy

    def open_listed(self, *ports: int) -> RabbitMQBroker:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        broker = open_broker(f"amqp://guest:guest@{hosts}/{self.vhost}", BrokerOptions())
        assert isinstance(broker, RabbitMQBroker)
        self.opened.push_async_callback(broker.aclose)
        return broker


@pytest.mark.slow
class TestReconnecting(RabbitMQCase):
    deadline = 20 + 5 * RECONNECTS
    patience = 20

    @pytest.fixture(autouse=True)
    def _quiet(self, caplog: pytest.LogCaptureFixture) -> None:
        # Log records are retained, and would be counted.
        caplog.set_level(logging.ERROR, logger="taskmq_rabbitmq")

    @pytest.mark.timeout(30 + 5 * RECONNECTS)
    @case
    async def test_reconnects_leave_nothing_behind(self) -> None:
        other = self.broker()
        brokers = [self.broker(CUT_OFF) for _ in range(10)]
        queues = [await self.queue(other) for _ in brokers]
        for broker, queue in zip(brokers, queues, strict=True):
            await broker.consume([Subscription(queue, 5)], self.take)
        await self.publish_and_take(brokers, queues)
        before: tuple[int, int, int] | None = None
        for number in range(1, RECONNECTS + 1):
            self.proxy.cut()
            await self.publish_and_take(brokers, queues)
            await self.all_connected(brokers)
            if number == 3:
                before = self.footprint()
        after = self.footprint()

        assert before is not None
        assert after[0] <= before[0] + 1
        assert after[1] <= before[1] + 2
        # Each of the reconnects since then would leave at least its connection, with some 300 objects.
        assert after[2] <= before[2] + 20 * len(brokers) * (RECONNECTS - 3)
        assert all(generation(broker) >= RECONNECTS for broker in brokers)
        # Two connections for each broker, and the other one's; the node has dropped the dead ones as well.
        await eventually(self.count_connections, 2 * len(brokers) + 1, within=20)
        assert len(await self.http("GET", "vhosts/{vhost}/channels")) <= 2 * len(brokers) + 1

    async def publish_and_take(self, brokers: list[RabbitMQBroker], queues: list[str]) -> None:
        self.came = 0
        for broker, queue in zip(brokers, queues, strict=True):
            await broker.publish(message(queue, "one"), timeout=20)

        async def all_came() -> bool:
            return self.came >= len(brokers)

        await eventually(all_came, True, within=20)

    def take(self, delivery: Delivery) -> None:
        delivery.ack()
        self.came += 1

    async def count_connections(self) -> int:
        return len(await self.http("GET", "vhosts/{vhost}/connections"))

    async def all_connected(self, brokers: list[RabbitMQBroker]) -> None:
        async def count_connections() -> tuple[int, int]:
            return sum(repr(broker).count(" open generation=") for broker in brokers), self.proxy.connections

        await eventually(count_connections, (2 * len(brokers), 2 * len(brokers)), within=20)

    def footprint(self) -> tuple[int, int, int]:
        """Return the descriptors, tasks and objects of this process."""
        # Cancelled timers stay in the loop until their time, once ten of them and once sixty.
        loop: Any = asyncio.get_running_loop()
        loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
        heapq.heapify(loop._scheduled)
        loop._timer_cancelled_count = 0
        gc.collect()
        return len([*FILES.iterdir()]), len(asyncio.all_tasks()), len(gc.get_objects())


@pytest.mark.slow
@pytest.mark.timeout(150)
class TestStopped(OwnNodeCase):
    deadline = 140

    @pytest.mark.nightly("tests/faults/test_recovery.py")
    @case
    async def test_consumers_return_within_seconds_after_their_node(self) -> None:
        broker, other = self.broker(), self.broker()
        queues = [await self.queue(broker) for _ in range(3)]
        inbox, consumer = await self.consume(broker, *queues)
        await asyncio.to_thread(self.server.stop)
        # Longer than it takes for the pauses to reach their limit.
        await asyncio.sleep(6)
        self.server.launch()

        async def healthy() -> bool:
            return consumer.healthy

        await eventually(healthy, True, within=30)
        for queue in queues:
            await other.publish(message(queue, queue), timeout=20)
        assert sorted(bodies(await inbox.take_and_ack(len(queues)))) == sorted(queues)


@pytest.mark.slow
@pytest.mark.timeout(120)
class TestAlarms(RabbitMQCase):
    deadline = 110

    @case
    async def test_a_memory_and_a_disk_alarm_stop_only_publishers(self) -> None:
        resources: tuple[Literal["memory", "disk"], ...] = ("memory", "disk")
        for resource in resources:
            broker = self.broker()
            queue = await self.queue(broker)
            await self.send(broker, queue, *map(str, range(50)))
            inbox, consumer = await self.consume(broker, queue, prefetch=1)
            await inbox.take(1)
            async with self.alarm(resource):
                await self.expect_blocked(broker, queue, resource)

                inbox.deliveries[0].ack()
                assert bodies(await inbox.take_and_ack(49)) == [str(number) for number in range(1, 50)]
                await self.expect_ready(broker, queue, 0)
                assert consumer.healthy
                assert len(await broker.stats([queue])) == 1
                waiting = [broker.publish(message(queue, f"later {number}"), timeout=60) for number in range(20)]

            await asyncio.gather(*waiting)
            assert broker.stale_settles == 0
            came: set[str] = set()
            while not came >= {f"later {number}" for number in range(20)}:
                came |= set(bodies(await inbox.take_and_ack(1)))
            await broker.aclose()

    async def expect_blocked(self, broker: RabbitMQBroker, queue: str, resource: str) -> None:
        """Assert that publishing is blocked: the broker notices the publisher by its first message after an alarm."""
        first = broker.publish(message(queue, "first"), timeout=1)
        await asyncio.wait({first})
        assert isinstance(first.exception(), PublishUnknown)
        for timeout in (0.1, 0.5, 2.0):
            began = time.monotonic()
            with raises(BrokerBlocked) as caught:
                await broker.publish(message(queue, "blocked"), timeout=timeout)
            assert timeout <= time.monotonic() - began
            assert resource in str(caught[0])


class TestPressure(RabbitMQCase):
    @case
    async def test_a_slowly_reading_broker_delays_only_publishers(self) -> None:
        sender, receiver = self.broker(CUT_OFF), self.broker()
        queue, other = await self.queue(receiver), await self.queue(receiver)
        await self.send(sender, queue, "the channel is open")
        inbox, _ = await self.consume(receiver, other)
        body = b"x" * 2**20

        self.proxy.stall(True)
        futures = [sender.publish(message(queue, body), timeout=1.5) for _ in range(48)]
        patient = [sender.publish(message(queue, body), timeout=30) for _ in range(8)]
        await self.send(receiver, other, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]
        await asyncio.wait(futures)

        kinds = [type(future.exception()) for future in futures]
        # Messages within the window of 32 MiB have possibly left this process.
        assert kinds == [PublishUnknown] * 32 + [BrokerBlocked] * 16
        self.proxy.stall(False)
        await asyncio.gather(*patient)


def generation(broker: RabbitMQBroker) -> int:
    """Return how often its consuming connection was opened."""
    found = re.findall(r"<Connection consume .*? generation=(\d+)>", repr(broker))
    return int(found[0])


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Open a port where the first packet of a connection is never answered."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # No connection is accepted, so that the backlog is full soon.
        for _ in range(8):
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        port: int = listener.getsockname()[1]
        yield port
