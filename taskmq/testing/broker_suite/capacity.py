"""Tests of limited queues: a full queue rejects messages, drops none, and accepts more once it has room."""

from taskmq.contracts.broker import Broker
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import PublishRejected
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message
from taskmq.testing.runner import case, eventually

_LIMIT = 5
# Limits are approximate: messages in flight when the limit is reached still get in.
_MORE = 20


class Limiting(BrokerCase):
    @case
    async def test_a_full_queue_rejects_messages_until_it_has_room(self) -> None:
        broker = self.broker()
        work = self.new_queue(max_length=_LIMIT)
        await broker.declare([work])

        taken = await self._fill(broker, work)

        assert _LIMIT <= len(taken) < _LIMIT + _MORE
        await self._expect_room_after_emptying(broker, work, taken)

    @case
    async def test_a_queue_over_its_byte_limit_rejects_messages(self) -> None:
        broker = self.broker()
        work = self.new_queue(max_bytes=1000 * _LIMIT)
        await broker.declare([work])

        taken = await self._fill(broker, work, size=1000)

        assert _LIMIT - 1 <= len(taken) < _LIMIT + _MORE
        await self._expect_room_after_emptying(broker, work, taken)

    @case
    async def test_each_priority_class_has_its_own_limit(self) -> None:
        broker = self.broker()
        work = self.new_queue(max_length=_LIMIT)
        await broker.declare([work])
        await self._fill(broker, work)

        for queue in work.physical:
            if queue != work.name:
                await self.send(broker, queue, "there is room")
                await self.expect_only(broker, queue, "there is room")

    @case
    async def test_a_delayed_message_reaches_a_limited_queue_when_due(self) -> None:
        broker = self.broker()
        work = self.new_queue(max_length=_LIMIT)
        await broker.declare([work])
        inbox, _ = await self.consume(broker, work.name)

        await self.publish(broker, message(work.name, "delayed", due=SystemClock().now_ms() + 300))

        assert bodies(await inbox.take_and_ack(1)) == ["delayed"]

    async def _fill(self, broker: Broker, work: WorkQueue, *, size: int = 1) -> list[str]:
        """Publish one by one until the queue is full; return the accepted texts."""
        taken: list[str] = []
        for number in range(_LIMIT + _MORE):
            text = f"{number:0{size}}"
            try:
                await self.send(broker, work.name, text)
            except PublishRejected:
                return taken
            taken.append(text)
        raise AssertionError(f"{len(taken)} messages were accepted and the queue is still not full")

    async def _expect_room_after_emptying(self, broker: Broker, work: WorkQueue, texts: list[str]) -> None:
        """Consume exactly `texts`, then publish again."""
        inbox, consumer = await self.consume(broker, work.name)
        assert bodies(await inbox.take_and_ack(len(texts))) == texts

        async def is_taken() -> bool:
            try:
                await self.send(broker, work.name, "there is room")
            except PublishRejected:
                return False
            return True

        await eventually(is_taken, expected=True, within=self.patience)
        assert bodies(await inbox.take_and_ack(1)) == ["there is room"]
        await consumer.stop()
