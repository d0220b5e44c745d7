"""The contract of `Broker` on a real node: on each loop, and with each kind of write to the connection."""

import asyncio

import pytest
import uvloop

from taskmq.testing.broker_suite import BrokerSuite
from taskmq.testing.broker_suite.case import bodies, peek
from taskmq.testing.runner import case
from tests.conformance.night import at_night
from tests.integration.rabbitmq_case import SharedVhostCase

pytestmark = pytest.mark.rabbitmq


class _OnRabbitMQ(SharedVhostCase, BrokerSuite):
    @case
    async def test_held_messages_are_not_delivered_to_others(self) -> None:
        # Stricter than the suite: the messages of two holders are in the order of their return.
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        async with peek(broker, queue, limit=2), peek(other, queue, limit=10) as rest:
            assert bodies(rest) == ["c"]

        await self.expect_ready(broker, queue, 3)
        await self.expect_only(broker, queue, *"cab")


# They take seconds; the gate cancels calls and browses in other tests of the suite.
@at_night(
    pytest.mark.nightly("taskmq/testing/broker_suite/browse.py"),
    "test_a_cancelled_hold_returns_every_message",
    "test_browsing_many_times_leaves_the_queue_unchanged",
)
class TestRabbitMQ(_OnRabbitMQ):
    """The setup of workers."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


@pytest.mark.campaign
class TestRabbitMQWithPlainWrites(_OnRabbitMQ):
    options = "?wire=plain"
