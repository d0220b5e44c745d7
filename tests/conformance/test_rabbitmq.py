"""The contract of `taskmq.broker` on a real node: on each loop, and on each way to write to the connection."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import uvloop

from taskmq.testing.broker_suite import BrokerSuite
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.servers import TcpProxy

pytestmark = pytest.mark.rabbitmq


class _OnRabbitMQ(RabbitMQCase, BrokerSuite):
    @pytest.fixture(autouse=True)
    def _server(self, shared_amqp_url: str) -> Iterator[None]:
        # A vhost for each test would cost more than the tests.
        self.process_url = shared_amqp_url + self.options
        with TcpProxy(urlsplit(shared_amqp_url).port or 5672) as self.proxy:
            yield

    @case
    async def test_what_is_held_is_nobody_else_s(self) -> None:
        # More than the suite expects: what two holders give back is in the order in which they gave it back.
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        async with broker.hold(queue, limit=2), other.hold(queue, limit=10) as rest:
            assert bodies(rest) == ["c"]

        await self.expect_ready(broker, queue, 3)
        await self.expect_only(broker, queue, *"cab")


class TestRabbitMQ(_OnRabbitMQ):
    """As workers run it."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


class TestRabbitMQWithPlainWrites(_OnRabbitMQ):
    options = "?wire=plain"
