"""Deliveries that stay unsettled for longer than RabbitMQ allows."""

import asyncio
from typing import ClassVar

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Subscription
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, eventually
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq.consume.consumer import RabbitMQConsumer
from taskmq_rabbitmq.model import consumer_timeout as timeouts
from tests.integration.rabbitmq_case import OwnNodeCase, RabbitMQCase, TunedNodeCase

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(120)]


class TestWarning(RabbitMQCase):
    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    @case
    async def test_a_starting_worker_names_the_queues_that_may_time_out(self) -> None:
        if self.server.version >= "4.3":
            pytest.skip("consumers of 4.3 state their own timeout")
        assert self.process_url is not None
        app = TaskMQ(self.process_url)

        @app.task(name="bounded", queue="bounded", timeout=60, result=False)
        async def bounded() -> None: ...

        @app.task(name="boundless", queue="boundless", result=False)
        async def boundless() -> None: ...

        worker = Worker(app, WorkerConfig())
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        worker.drain()
        await running

        (line,) = [line for line in self.log.messages if "may run for more than 30 minutes" in line]
        assert "'boundless'" in line
        assert "'bounded'" not in line
        assert timeouts.remedy(tuple(map(int, self.server.version.split(".")))) in line


class TimeoutCase(RabbitMQCase):
    deadline = 100
    patience = 30

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    def has_logged(self, *words: str) -> bool:
        """Whether one line of the log has all these words."""
        return any(all(word in line for word in words) for line in self.log.messages)


@pytest.mark.slow
class TestClosedChannel(TimeoutCase, TunedNodeCase):
    """Closed channels: up to 4.2 the broker closes the channel."""

    # Each channel checks it once per tick, which is a minute by default.
    settings: ClassVar = {"consumer_timeout": 2000, "channel_tick_interval": 1000}

    @case
    async def test_the_subscription_recovers_and_the_others_are_untouched(self) -> None:
        if self.server.version >= "4.3":
            pytest.skip("4.3 cancels the consumer instead")
        broker, other = self.broker(), self.broker()
        slow, quick = await self.queue(other), await self.queue(other)
        inbox, consumer = await self.consume(broker, slow, quick, prefetch=2)
        await self.send(other, slow, "held", "waiting")
        held = await inbox.take(2)

        again = await inbox.take(2)

        assert bodies(again) == ["held", "waiting"]
        assert all(delivery.redelivered for delivery in again)
        remedy = timeouts.remedy(tuple(map(int, self.server.version.split("."))))
        assert self.has_logged(slow, "longer than the consumer timeout", remedy)
        assert not self.has_logged(quick, "consuming it again")
        assert isinstance(consumer, RabbitMQConsumer)
        assert consumer.replacements == 0
        for delivery in held:
            delivery.ack()
        assert broker.stale_settles == 2
        for delivery in again:
            delivery.ack()
        await self.send(other, quick, "quick")
        assert bodies(await inbox.take_and_ack(1)) == ["quick"]
        await consumer.stop()
        await self.expect_only(other, slow)
        assert broker.stale_settles == 2


@pytest.mark.slow
@pytest.mark.matrix
class TestCancelledConsumer(TimeoutCase, OwnNodeCase):
    """Cancelled consumers: from 4.3 on the broker cancels them, and they may state their own timeout."""

    version = "4.3"
    config: ClassVar = {"consumer_timeout": "2000"}

    @pytest.fixture(autouse=True)
    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch

    @case
    async def test_a_consumer_with_a_long_timeout_is_not_cancelled(self) -> None:
        broker, other = self.broker(), self.broker()
        bounded, boundless = await self.queue(other), await self.queue(other)
        inbox = self.inbox()
        consumer = await broker.consume([Subscription(bounded, 1, longest=60.0), Subscription(boundless, 1)], inbox)
        await self.send(other, bounded, "bounded")
        await self.send(other, boundless, "boundless")
        held = await inbox.take(2)

        # Several times the node's own limit.
        await asyncio.sleep(8)

        assert not inbox.untaken
        assert "may run for more" not in self.log.text
        for delivery in held:
            delivery.ack()
        assert broker.stale_settles == 0
        await consumer.stop()
        await self.expect_only(other, bounded)

    @case
    async def test_a_policy_cannot_time_out_that_consumer_either(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        await self.http(
            "PUT",
            "policies/{vhost}/short",
            {"pattern": f"^{queue}$", "definition": {"consumer-timeout": 1500}, "apply-to": "quorum_queues"},
        )
        await asyncio.sleep(1)
        inbox, _ = await self.consume(broker, queue, prefetch=1)
        await self.send(other, queue, "one")
        (one,) = await inbox.take(1)

        await asyncio.sleep(6)

        one.ack()
        assert broker.stale_settles == 0

    @case
    async def test_a_classic_queue_is_consumed_without_a_timeout(self) -> None:
        broker = self.broker()
        queue = WorkQueue(self.new_queue().name, "classic")
        await broker.declare([queue])
        inbox, consumer = await self.consume(broker, queue.name)

        await self.send(broker, queue.name, "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]
        assert consumer.healthy

    @case
    async def test_a_cancelled_consumer_returns_with_a_new_tag(self) -> None:
        broker, other = self.broker(), self.broker()
        slow, quick = await self.queue(other), await self.queue(other)
        # No time limit of a task is as short as this.
        self.patch.setattr(timeouts, "consume_arguments", lambda *_: {"x-consumer-timeout": 2000})
        inbox, consumer = await self.consume(broker, slow, quick, prefetch=2)
        await self.send(other, slow, "held", "waiting")
        held = await inbox.take(2)

        again = await inbox.take(2)

        assert sorted(bodies(again)) == ["held", "waiting"]
        assert self.has_logged(slow, "longer than", "consumer timeout", "`timeout`")
        assert not self.has_logged(quick, "consuming it again")
        for delivery in held:
            delivery.ack()
        assert broker.stale_settles == 2
        for delivery in again:
            delivery.ack()

        async def healthy() -> bool:
            return consumer.healthy

        await eventually(healthy, True, within=10)
        await consumer.stop()
        await self.expect_only(other, slow)
