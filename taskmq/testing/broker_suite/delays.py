"""Tests of delays: held at the broker, never early, in due order."""

from taskmq.contracts.broker import Broker
from taskmq.contracts.system_clock import SystemClock
from taskmq.testing.broker_suite.case import BrokerCase, Inbox, bodies, message, peek
from taskmq.testing.runner import case

_FAR_MS = 3_600_000
# Longer than the lateness of a busy broker.
_APART = 700


class Delaying(BrokerCase):
    """Tests in real time: delays of up to six seconds.

    Attributes:
        latest_ms: maximum lateness of a delayed message.
    """

    latest_ms: int = 5_000

    @case
    async def test_a_delayed_message_arrives_neither_early_nor_much_too_late(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)

        for delay_ms in (1, 130, 700, 1_501):
            due = _now() + delay_ms
            await self.publish(broker, message(queue, str(delay_ms), due=due))
            late_ms = await self._lateness(inbox, due)
            assert 0 <= late_ms <= self.latest_ms, f"{delay_ms} ms: arrived {late_ms} ms after its due time"

    @case
    async def test_a_message_with_a_past_time_is_delivered_immediately(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        texts = ["0", "1", "two", "a day ago", "now", "last"]

        await self.publish(
            broker,
            message(queue, texts[0], due=0),
            message(queue, texts[1], due=1),
            message(queue, texts[2]),
            message(queue, texts[3], due=_now() - 86_400_000),
            message(queue, texts[4], due=_now()),
            message(queue, texts[5]),
        )

        inbox, _ = await self.consume(broker, queue)
        assert bodies(await inbox.take_and_ack(6)) == texts

    @case
    async def test_messages_without_a_delay_overtake_delayed_ones(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)
        due = _now() + 1_500

        await self.publish(broker, message(queue, "delayed", due=due))
        await self.send(broker, queue, "one", "two")

        assert bodies(await inbox.take_and_ack(2)) == ["one", "two"]
        assert await self._lateness(inbox, due) >= 0
        assert bodies(inbox.deliveries) == ["one", "two", "delayed"]
        assert not inbox.deliveries[-1].redelivered

    @case
    async def test_delayed_messages_arrive_in_order_of_due_time(self) -> None:
        broker, receiver = self.broker(), self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(receiver, queue)
        start = _now() + 500

        order = (4, 1, 6, 0, 3, 7, 2, 5)
        await self.publish(broker, *(message(queue, str(number), due=start + _APART * number) for number in order))

        for number in sorted(order):
            assert await self._lateness(inbox, start + _APART * number) >= 0
        assert bodies(inbox.deliveries) == [str(number) for number in sorted(order)]

    @case
    async def test_many_messages_due_at_the_same_time_all_arrive(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)
        due = _now() + 800
        texts = {str(number) for number in range(200)}

        await self.publish(broker, *(message(queue, text, due=due) for text in texts))

        assert set(bodies(await inbox.take_and_ack(len(texts)))) == texts
        assert _now() >= due

    @case
    async def test_a_delayed_message_survives_its_publisher_closing(self) -> None:
        sender, receiver = self.broker(), self.broker()
        queue = await self.queue(receiver)
        due = _now() + 900
        await self.publish(sender, message(queue, "one", due=due))

        await sender.aclose()

        inbox, _ = await self.consume(receiver, queue)
        assert 0 <= await self._lateness(inbox, due) <= self.latest_ms

    @case
    async def test_a_consumer_that_starts_late_receives_an_overdue_message(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.publish(broker, message(queue, "delayed", due=_now() + 300))

        await self.expect_ready(broker, queue, 1)

        inbox, _ = await self.consume(broker, queue)
        assert bodies(await inbox.take_and_ack(1)) == ["delayed"]

    @case
    async def test_a_delayed_message_keeps_its_properties(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        sent = message(queue, bytes(range(256)), due=_now() + 200, headers={"x-taskmq-number": 2**62})

        await self.publish(broker, sent)

        inbox, _ = await self.consume(broker, queue)
        (received,) = await inbox.take_and_ack(1)
        assert (received.body, received.content_type) == (sent.body, sent.content_type)
        assert (received.message_id, received.task, received.queue) == (sent.job_id, sent.task, queue)
        assert received.headers["x-taskmq-number"] == 2**62

    @case
    async def test_a_delayed_message_is_not_ready_before_it_is_due(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.publish(broker, *(message(queue, "far", due=_now() + _FAR_MS) for _ in range(3)))

        (stats,) = await broker.stats([queue])
        assert stats.ready == 0
        assert stats.delayed in (None, 3)
        async with peek(broker, queue, limit=10) as held:
            assert held == []
        assert await broker.purge(queue) == 0
        await self.expect_only(broker, queue)

    @case
    async def test_a_purge_keeps_delayed_messages(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self._fill_ready(broker, queue)
        due = _now() + 1_500
        await self.publish(broker, message(queue, "delayed", due=due))

        assert await broker.purge(queue) == 2

        inbox, _ = await self.consume(broker, queue)
        assert await self._lateness(inbox, due) >= 0
        assert bodies(inbox.deliveries) == ["delayed"]

    @case
    async def test_a_delivered_message_can_be_delayed_again(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, _ = await self.consume(broker, queue)
        await self.publish(broker, message(queue, "once", due=_now() + 150))
        (first,) = await inbox.take(1)

        due = _now() + 400
        await self.publish(broker, message(queue, "twice", due=due))
        first.ack()

        assert await self._lateness(inbox, due) >= 0
        assert bodies(inbox.deliveries) == ["once", "twice"]

    async def _lateness(self, inbox: Inbox, due: int) -> int:
        """Return how many ms after `due` the next delivery arrived; negative if early."""
        await inbox.take_and_ack(1)
        return _now() - due

    async def _fill_ready(self, broker: Broker, queue: str) -> None:
        await self.send(broker, queue, "one", "two")
        await self.expect_ready(broker, queue, 2)


def _now() -> int:
    return SystemClock().now_ms()
