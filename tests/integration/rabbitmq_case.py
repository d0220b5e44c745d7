"""Base classes for the tests of `taskmq_rabbitmq`: each has a vhost, behind a proxy on request."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, ClassVar, Literal, Protocol, cast
from urllib.parse import quote, urlsplit

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import BrokerUnavailable
from taskmq.testing.broker_suite import BrokerCase
from taskmq.testing.runner import eventually
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.servers import RabbitMQ, TcpProxy

CUT_OFF = "cut off"


class RabbitMQCase(BrokerCase):
    """A broker with the name `CUT_OFF` connects through `proxy`."""

    can_lose = True
    options = ""

    @pytest.fixture(autouse=True)
    def _server(self, amqp_url: str, rabbitmq_server: RabbitMQ) -> Iterator[None]:
        self.server = rabbitmq_server
        self.vhost = urlsplit(amqp_url).path.removeprefix("/")
        self.process_url = amqp_url + self.options
        with TcpProxy(urlsplit(amqp_url).port or 5672) as self.proxy:
            yield

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        assert self.process_url is not None
        url = urlsplit(self.process_url)
        if name == CUT_OFF:
            url = url._replace(netloc=f"guest:guest@127.0.0.1:{self.proxy.port}")
        broker = open_broker(url.geturl(), BrokerOptions(name=name or "test"))
        assert isinstance(broker, RabbitMQBroker)
        return broker

    def broker(self, name: str = "") -> RabbitMQBroker:
        return cast("RabbitMQBroker", super().broker(name))

    async def lose(self, broker: object) -> None:
        self.proxy.cut()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds."""

        async def look() -> bool:
            return holds()

        await eventually(look, True, within=20)

    async def http(self, method: str, path: str, body: object = None) -> Any:
        """Call the management API; {vhost} in the path is the test's."""
        path = f"/api/{path.replace('{vhost}', quote(self.vhost, safe=''))}"
        return await asyncio.to_thread(self.server.http, method, path, body)

    @asynccontextmanager
    async def alarm(self, resource: Literal["memory", "disk"]) -> AsyncIterator[None]:
        """Raise an alarm of the node inside the block; it always ends with the block."""
        alarm = self.server.alarm(resource)
        await asyncio.to_thread(alarm.__enter__)
        try:
            yield
        finally:
            await asyncio.to_thread(alarm.__exit__, None, None, None)

    async def delete_queue(self, queue: str) -> None:
        await self.http("DELETE", f"queues/{{vhost}}/{queue}")


class FreshVhostCase(RabbitMQCase):
    """The vhost is new, for tests of the objects that all apps share."""

    @pytest.fixture(autouse=True)
    def _server(self, fresh_amqp_url: str, rabbitmq_server: RabbitMQ) -> Iterator[None]:
        self.server = rabbitmq_server
        self.vhost = urlsplit(fresh_amqp_url).path.removeprefix("/")
        self.process_url = fresh_amqp_url + self.options
        with TcpProxy(rabbitmq_server.port) as self.proxy:
            yield


class SharedVhostCase(RabbitMQCase):
    """Tests that only use their own queues, in one shared vhost, which is much cheaper."""

    @pytest.fixture(autouse=True)
    def _server(self, shared_amqp_url: str, rabbitmq_server: RabbitMQ) -> Iterator[None]:
        self.server = rabbitmq_server
        self.vhost = urlsplit(shared_amqp_url).path.removeprefix("/")
        self.process_url = shared_amqp_url + self.options
        with TcpProxy(rabbitmq_server.port) as self.proxy:
            yield


class OwnNodeCase(RabbitMQCase):
    """Each test has its own node, which it may stop, kill and configure.

    Attributes:
        version: as for `RabbitMQ`; None: that of the whole session.
        config: lines for rabbitmq.conf.
        advanced_config: the text of advanced.config.
    """

    version: str | None = None
    config: ClassVar[Mapping[str, str]] = {}
    advanced_config = ""

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        version = self.version or os.environ.get("TASKMQ_TEST_RABBITMQ")
        with RabbitMQ(version, config=self.config, advanced_config=self.advanced_config) as self.server:
            self.process_url = self.server.create_vhost() + self.options
            self.vhost = urlsplit(self.process_url).path.removeprefix("/")
            with TcpProxy(self.server.port) as self.proxy:
                yield


class TunedNodeCase(RabbitMQCase):
    """The session's node has other settings while a test runs.

    Attributes:
        version: of a separate node, if the session's version does not suit the test.
        settings: see `RabbitMQ.settings`.
    """

    version: str | None = None
    settings: ClassVar[Mapping[str, int]] = {}

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with ExitStack() as stack:
            if self.version is None:
                self.server = request.getfixturevalue("rabbitmq_server")
            else:
                self.server = stack.enter_context(RabbitMQ(self.version))
            stack.enter_context(self.server.settings(self.settings))
            url = self.server.create_vhost()
            stack.callback(self.server.delete_vhost, url)
            self.process_url = url + self.options
            self.vhost = urlsplit(url).path.removeprefix("/")
            self.proxy = stack.enter_context(TcpProxy(self.server.port))
            yield


class _Call(Protocol):
    def __call__(self, *, timeout: float) -> Awaitable[None]: ...


async def refusal(reason: str, call: _Call) -> BrokerUnavailable:
    """Return the error of a failing call once it names the reason, which may take seconds on a busy machine."""
    said: list[str] = []
    for timeout in (1.0, 4.0, 16.0):
        with pytest.raises(BrokerUnavailable) as caught:
            await call(timeout=timeout)
        if reason in str(caught.value):
            return caught.value
        said.append(str(caught.value))
    raise AssertionError(f"no error named the reason {reason!r}: {said}")
