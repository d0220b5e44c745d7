"""Findings of the campaigns about recovery, each as small as possible."""

import pytest

from taskmq.contracts.broker import Broker
from taskmq.errors import PublishRejected, PublishUnknown
from taskmq.model.backoff import Backoff
from taskmq.testing.broker_suite import message
from taskmq.testing.runner import case, eventually, raises
from taskmq_rabbitmq.consume import queue_consumer
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


class TestConsumers(RabbitMQCase):
    deadline = 60

    @case
    async def test_consumers_return_with_their_connection_however_often_it_is_lost(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queues = [await self.queue(other) for _ in range(8)]

        async def is_connected() -> bool:
            return self.proxy.connections == 1

        async def healthy() -> bool:
            return consumer.healthy

        with pytest.MonkeyPatch.context() as patch:
            # A pause of the consumer itself would outlast the test, on any machine.
            patch.setattr(queue_consumer, "reconnect_backoff", lambda: Backoff(3600, 3600))
            _, consumer = await self.consume(broker, *queues)
            for _ in range(3):
                # A connection counts as restored only after it was seen to be lost: its first pause may be almost
                # nothing.
                self.proxy.refuse(True)
                self.proxy.cut()
                await eventually(healthy, False, within=5)
                self.proxy.refuse(False)
                await eventually(is_connected, True, within=10)
                await eventually(healthy, True, within=10)


class TestSends(RabbitMQCase):
    @case
    async def test_a_refused_copy_says_nothing_about_the_previous_one(self) -> None:
        """Found on a cluster whose leader was killed: a send that ended with "nothing was sent", and ran."""
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        await self.send(broker, queue, "one", "two")
        self.proxy.hold_answers(True)
        future = broker.publish(message(queue, "three"), timeout=20)

        async def ready() -> int:
            (stats,) = await other.stats([queue])
            return stats.ready

        await eventually(ready, 3, within=10)
        await self.http(
            "PUT",
            "policies/{vhost}/full",
            {"pattern": ".*", "definition": {"max-length": 1}, "apply-to": "queues"},
        )
        await eventually(lambda: self.is_full(other, queue), True, within=10)
        self.proxy.cut()
        self.proxy.hold_answers(False)

        with raises(PublishUnknown):
            await future

    async def is_full(self, broker: Broker, queue: str) -> bool:
        try:
            await broker.publish(message(queue, "four"), timeout=5)
        except PublishRejected:
            return True
        return False
