"""Silently lost consumers and publishing channels, and their detection."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pika  # type: ignore[import-untyped]  # it carries no types
import pytest

from taskmq.contracts.broker import BrokerOptions, Subscription
from taskmq.errors import PublishUnknown
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import Inbox, bodies
from taskmq.testing.runner import case, eventually
from taskmq_rabbitmq.broker import RabbitMQBroker
from taskmq_rabbitmq.consume.consumer import RabbitMQConsumer
from taskmq_rabbitmq.model.url import parse_url
from tests.integration.frame_proxy import BASIC_ACK, BASIC_CANCEL, BASIC_CONSUME_OK, BASIC_DELIVER, FrameProxy
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

QUICKLY = 0.2
NEVER = 3600.0


class FrameCase(RabbitMQCase):
    watch_seconds = QUICKLY
    frames: FrameProxy

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def behind_frames() -> None:
            self.frames = await self.opened.enter_async_context(FrameProxy(self.server.port))
            await test()

        super().run(behind_frames)

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        if name != CUT_OFF:
            return super().open_broker(name)
        assert self.process_url is not None
        url = urlsplit(self.process_url)._replace(netloc=f"guest:guest@127.0.0.1:{self.frames.port}")
        return RabbitMQBroker(parse_url(url.geturl()), BrokerOptions(), watch_seconds=self.watch_seconds)


class TestChannelsWithoutConfirms(FrameCase):
    patience = 20.0

    @case
    async def test_a_channel_that_confirms_nothing_is_replaced(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.mute(broker, queue)

        await asyncio.gather(*(broker.publish(message(queue, str(number)), timeout=15) for number in range(30)))

        await self.until(lambda: not self.frames.muted)
        await self.send(broker, queue, "after")

    @case
    async def test_a_channel_full_of_abandoned_messages_is_replaced(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.mute(broker, queue)
        given_up = [broker.publish(message(queue, str(number)), timeout=0.5) for number in range(1000)]
        outcomes = await asyncio.gather(*given_up, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {PublishUnknown}

        await broker.publish(message(queue, "after"), timeout=15)

        await self.until(lambda: not self.frames.muted)

    @case
    async def test_a_channel_with_a_dead_queue_is_kept_and_few_messages_are_sent_twice(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.send(broker, queue, "before")
        channel = self.frames.last[BASIC_ACK]
        self.frames.held = {BASIC_ACK}
        futures = [broker.publish(message(queue, str(number)), timeout=15) for number in range(30)]
        await self.until(lambda: self.frames.last[BASIC_ACK] != channel)

        self.frames.held = set()
        self.frames.release()

        await asyncio.gather(*futures)
        await self.send(broker, queue, "after")
        assert self.frames.last[BASIC_ACK] == channel
        await self.expect_ready(broker, queue, 33)

    async def mute(self, broker: RabbitMQBroker, queue: str) -> None:
        """Suppress all further confirms on the channel that `broker` publishes on."""
        await self.send(broker, queue, "before")
        self.frames.muted = {(BASIC_ACK, self.frames.last[BASIC_ACK])}


class TestWatchdog(FrameCase):
    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    @case
    async def test_a_lost_cancel_stalls_without_the_watchdog(self) -> None:
        self.watch_seconds = NEVER
        inbox, consumer, queue = await self.consume_with_lost_cancel()

        await self.send(self.broker(), queue, "one")

        assert await self.stays_ready(queue, 1)
        assert consumer.healthy
        assert not inbox.deliveries

    @case
    async def test_a_lost_cancel_is_found(self) -> None:
        self.watch_seconds = 1.0
        inbox, consumer, queue = await self.consume_with_lost_cancel()

        await self.send(self.broker(), queue, "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]
        assert consumer.healthy
        assert consumer.replacements >= 1
        assert any(queue in text and "seems to be lost" in text for text in self.log.messages)

    @case
    async def test_lost_deliveries_stall_without_the_watchdog(self) -> None:
        self.watch_seconds = NEVER
        inbox, consumer, queue = await self.consume_with_lost_deliveries()

        assert await self.stays_ready(queue, 5)
        assert consumer.healthy
        assert not inbox.deliveries

    @case
    async def test_lost_deliveries_are_redelivered(self) -> None:
        inbox, consumer, _ = await self.consume_with_lost_deliveries()

        # A quorum queue may return them in another order if the broker considered two of them delivered.
        assert sorted(bodies(await inbox.take_and_ack(7))) == [str(number) for number in range(7)]
        assert consumer.replacements >= 1

    @case
    async def test_a_queue_declared_anew_at_once_stalls_without_the_watchdog(self) -> None:
        """3.10: a quorum queue declared again within some 10 ms of its deletion keeps the dead consumer."""
        if not self.server.version.startswith("3.10."):
            pytest.skip("later versions cancel the consumer")
        self.watch_seconds = NEVER

        assert await self.stalls_within(attempts=10)

    @case
    async def test_a_queue_declared_anew_at_once_is_consumed(self) -> None:
        inbox, _, queue = await self.consume_redeclared_queue()

        await self.send(self.broker(), queue, *"abc")

        assert sorted(set(bodies(await inbox.take_and_ack(3)))) == ["a", "b", "c"]

    @case
    async def test_an_unanswered_start_is_tried_on_another_channel(self) -> None:
        """Lose the answer, as by a quorum queue that lost its majority and regained it."""
        queue = await self.queue(self.broker())
        inbox = self.inbox()
        self.frames.held = {BASIC_CONSUME_OK}
        beginning = asyncio.create_task(self.broker(CUT_OFF).consume([Subscription(queue, 10)], inbox))
        await eventually(self.count_held, 1, within=self.patience)
        self.frames.held = set()

        consumer = await beginning
        await self.send(self.broker(), queue, *"abc")
        self.frames.release()

        assert sorted(bodies(await inbox.take_and_ack(3))) == ["a", "b", "c"]
        assert consumer.healthy

    @case
    async def test_a_busy_consumer_is_left_alone(self) -> None:
        broker, sender = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        await self.send(sender, queue, *map(str, range(200)))
        inbox, consumer = await self.consume_watched(broker, queue, prefetch=3)

        for _ in range(20):
            for delivery in await inbox.take(3):
                await asyncio.sleep(0.02)
                delivery.ack()

        assert consumer.replacements == broker.stale_settles == 0
        assert bodies(inbox.deliveries[:60]) == [str(number) for number in range(60)]

    @case
    async def test_an_idle_consumer_is_renewed(self) -> None:
        broker, sender = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        inbox, consumer = await self.consume_watched(broker, queue)

        async def was_renewed() -> bool:
            return self.frames.seen[BASIC_CONSUME_OK] > 1

        await eventually(was_renewed, True, within=20)
        await self.send(sender, queue, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]
        assert consumer.replacements == broker.stale_settles == 0

    @case
    async def test_renewing_delivers_each_message_once(self) -> None:
        self.watch_seconds = NEVER
        broker, sender = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        inbox, consumer = await self.consume_watched(broker, queue)
        (subscription,) = consumer._subscriptions

        async def renew_again_and_again() -> None:
            while True:
                await subscription.renew()

        renewing = asyncio.create_task(renew_again_and_again())
        for number in range(300):
            await self.send(sender, queue, str(number))
        deliveries = await inbox.take_and_ack(300)
        renewing.cancel()
        await asyncio.wait({renewing})

        # A message that RabbitMQ had assigned to a consumer that left just then is redelivered, but never arrived
        # before.
        assert sorted(map(int, bodies(deliveries))) == list(range(300))
        assert not inbox.untaken
        assert broker.stale_settles == 0
        assert self.frames.seen[BASIC_CONSUME_OK] > 20

    async def consume_with_lost_cancel(self) -> tuple[Inbox, RabbitMQConsumer, str]:
        broker, owner = self.broker(CUT_OFF), self.broker()
        work = self.new_queue()
        await owner.declare([work])
        inbox, consumer = await self.consume_watched(broker, work.name)
        self.frames.lost = {BASIC_CANCEL}
        await self.delete_queue(work.name)
        await eventually(self.count_lost, 1, within=self.patience)
        await self.broker().declare([work])
        return inbox, consumer, work.name

    async def consume_with_lost_deliveries(self) -> tuple[Inbox, RabbitMQConsumer, str]:
        broker, sender = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        inbox, consumer = await self.consume_watched(broker, queue, prefetch=2)
        self.frames.lost = {BASIC_DELIVER}
        await self.send(sender, queue, *map(str, range(7)))
        # With one of the two unacked it would continue, and get the other when it is renewed.
        await eventually(self.count_lost, 2, within=self.patience)
        self.frames.lost = set()
        return inbox, consumer, queue

    async def consume_redeclared_queue(self) -> tuple[Inbox, RabbitMQConsumer, str]:
        broker, owner = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(owner)
        inbox, consumer = await self.consume_watched(broker, queue)
        arguments = (await self.http("GET", f"queues/{{vhost}}/{queue}"))["arguments"]
        await asyncio.to_thread(self.redeclare, queue, arguments)
        return inbox, consumer, queue

    async def stalls_within(self, *, attempts: int) -> bool:
        """Whether a healthy consumer gets nothing; the broker notices the deletion if it has the time to."""
        for _ in range(attempts):
            inbox, consumer, queue = await self.consume_redeclared_queue()
            await self.send(self.broker(), queue, *"abc")
            assert await self.stays_ready(queue, 0)
            assert consumer.healthy
            if not inbox.deliveries:
                return True
        return False

    async def consume_watched(
        self, broker: RabbitMQBroker, queue: str, *, prefetch: int = 10
    ) -> tuple[Inbox, RabbitMQConsumer]:
        inbox = self.inbox()
        return inbox, await broker.consume([Subscription(queue, prefetch)], inbox)

    async def count_lost(self) -> int:
        return self.frames.swallowed

    async def count_held(self) -> int:
        return self.frames.waiting

    async def stays_ready(self, queue: str, count: int) -> bool:
        """Whether that many messages are ready in the end, after more than enough time for a watchdog."""
        await self.expect_ready(self.broker(), queue, count)
        await asyncio.sleep(10 * QUICKLY)
        (stats,) = await self.broker().stats([queue])
        return stats.ready == count

    def redeclare(self, queue: str, arguments: dict[str, object]) -> None:
        assert self.process_url is not None
        connection = pika.BlockingConnection(pika.URLParameters(self.process_url))
        channel = connection.channel()
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True, arguments=arguments)
        connection.close()
