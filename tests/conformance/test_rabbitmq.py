from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from taskmq.broker import Broker, BrokerOptions
from taskmq.testing.broker_suite import BrokerSuite
from taskmq_rabbitmq import open_broker
from tests.servers import TcpProxy

pytestmark = pytest.mark.rabbitmq


class TestRabbitMQ(BrokerSuite):
    """Brokers named "cut off" reach the node through a proxy of their own; all others directly."""

    can_lose = True

    @pytest.fixture(autouse=True)
    def _server(self, amqp_url: str) -> Iterator[None]:
        self.process_url = self.url = amqp_url
        with TcpProxy(urlsplit(amqp_url).port or 5672) as self.proxy:
            yield

    def open_broker(self, name: str = "") -> Broker:
        url = self.url
        if name == "cut off":
            parts = urlsplit(url)
            address = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.proxy.port}"
            url = parts._replace(netloc=address).geturl()
        return open_broker(url, BrokerOptions(name=name or "suite"))

    async def lose(self, broker: Broker) -> None:
        self.proxy.cut()
