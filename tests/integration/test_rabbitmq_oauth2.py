"""OAuth 2: tokens of a few seconds on a real node that accepts them."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.contracts.source import SourceQueue
from taskmq.errors import AccessDenied, SendError, TaskMQError
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq_aio_pika import open_source
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.rabbitmq_case import refusal
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ
from tests.servers.tokens import ADVANCED_CONFIG, CONFIG, PLUGIN, TokenServer, signed_token
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.real_time]

SECONDS = 7.0


@pytest.fixture(scope="module")
def node() -> Iterator[RabbitMQ]:
    version = os.environ.get("TASKMQ_TEST_RABBITMQ")
    with RabbitMQ(version, config=CONFIG, advanced_config=ADVANCED_CONFIG, plugins=(PLUGIN,)) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


class TokenFile:
    """A token's file, as its renewing program sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: list[str] = []

    def renew(self, *, seconds: float = SECONDS, more: str = "") -> None:
        self.write(signed_token(seconds=seconds, more=more))

    def write(self, token: str) -> None:
        self.tokens.append(token)
        new = self.path.with_suffix(".new")
        new.write_text(token)
        new.rename(self.path)


@pytest.fixture
def token(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token")


@asynccontextmanager
async def _broker(node: RabbitMQ, login: str, query: str) -> AsyncIterator[RabbitMQBroker]:
    broker = open_broker(f"amqp://{login}127.0.0.1:{node.port}/?{query}", BrokerOptions(name="oauth"))
    assert isinstance(broker, RabbitMQBroker)
    try:
        yield broker
    finally:
        await broker.aclose()


def _generations(broker: RabbitMQBroker) -> tuple[int, int]:
    assert broker._parts is not None
    return broker._parts.sending.generation, broker._parts.receiving.generation


async def _work(broker: RabbitMQBroker, *, lifetimes: int) -> None:
    """Send and receive through `lifetimes` lives of a token."""
    received: list[bytes] = []

    def deliver(delivery: Delivery) -> None:
        received.append(delivery.body)
        delivery.ack()

    await broker.declare([WorkQueue("oauth.work")])
    consumer = await broker.consume([Subscription("oauth.work", 10)], deliver)
    sent, end = 0, time.monotonic() + lifetimes * SECONDS
    while time.monotonic() < end:
        await broker.publish(message("oauth.work", str(sent)), timeout=5)
        sent += 1
        await asyncio.sleep(0.2)
    await until(lambda: len(received) >= sent)
    assert consumer.healthy
    await consumer.stop()


async def _again_and_again(renew: Callable[[], None]) -> None:
    """Renew the token like an external program, on its own clock."""
    while True:
        await asyncio.sleep(SECONDS / 4)
        renew()


async def test_the_same_connections_outlive_their_tokens(
    node: RabbitMQ, token: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token.renew()

    async with _broker(node, "", f"token_file={token.path}") as broker:
        renewing = asyncio.create_task(_again_and_again(token.renew))
        await _work(broker, lifetimes=2)
        renewing.cancel()
        assert _generations(broker) == (1, 1)

    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and "token" in record.msg]
    assert not any(secret in caplog.text for secret in token.tokens)


@pytest.mark.nightly("tests/integration/test_rabbitmq_oauth2.py::test_the_same_connections_outlive_their_tokens")
async def test_a_token_server_is_asked_for_one_token_after_the_other(node: RabbitMQ) -> None:
    with TokenServer(client_id="shop", secret="S3CRET", make=lambda: signed_token(seconds=SECONDS)) as server:
        async with _broker(node, "shop:S3CRET@", f"oauth2_token_url={server.url}") as broker:
            await _work(broker, lifetimes=3)
            assert _generations(broker) == (1, 1)

    assert len(server.handed_out) >= 3


def test_a_token_server_that_is_down_at_first_is_waited_for(node: RabbitMQ) -> None:
    async def main() -> None:
        async with _broker(node, "shop:S3CRET@", f"oauth2_token_url={server.url}") as broker:
            assert not isinstance(await refusal("answered 503", broker.connect), AccessDenied)
            server.answer = (200, None)
            await broker.connect(timeout=20)

    with TokenServer(client_id="shop", secret="S3CRET") as server:
        server.answer = (503, b"")
        asyncio.run(main())


async def test_an_unrenewed_token_is_refused_and_its_successor_is_used(node: RabbitMQ, token: TokenFile) -> None:
    token.renew(seconds=5)

    async with _broker(node, "", f"token_file={token.path}") as broker:
        await broker.declare([WorkQueue("oauth.expired")])
        error = await _first_refusal(broker)
        assert "expired" in str(error)
        assert token.tokens[0] not in str(error)
        token.renew(seconds=60)

        async def is_accepted() -> bool:
            try:
                await broker.publish(message("oauth.expired", "after"), timeout=5)
            except SendError:
                return False
            return True

        await until(is_accepted)


async def _first_refusal(broker: RabbitMQBroker) -> AccessDenied:
    """3.10 refuses new operations of a connection with an expired token, later versions close the connection."""
    refused: list[AccessDenied] = []
    numbers = itertools.count()

    async def is_refused() -> bool:
        try:
            await broker.declare([WorkQueue(f"oauth.expired.{next(numbers)}")])
        except AccessDenied as error:
            refused.append(error)
        return bool(refused)

    await until(is_refused, every=timedelta(milliseconds=100))
    return refused[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: signed_token(seconds=-60), "the token of .* expired [0-9]+ s ago and there is no newer one"),
        (lambda: signed_token(rights=("read:nowhere/*",)), "NOT_ALLOWED|ACCESS_REFUSED"),
        (lambda: "no-token-at-all", "check the token's audience"),
    ],
    ids=["expired", "without rights", "no token"],
)
async def test_an_unaccepted_token_is_a_refusal(
    node: RabbitMQ, token: TokenFile, make: Callable[[], str], reason: str
) -> None:
    secret = make()
    token.write(secret)

    async with _broker(node, "", f"token_file={token.path}") as broker:
        with pytest.raises(AccessDenied, match=reason) as caught:
            await broker.connect(timeout=20)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("size", [3000, 3500, 7000, 7600])
async def test_a_token_fits_into_the_login_or_is_reported_as_too_large(
    node: RabbitMQ, token: TokenFile, size: int
) -> None:
    whole = signed_token()
    token.renew(seconds=60, more="x" * ((size - len(whole)) * 3 // 4))
    limit = 8192 if tuple(map(int, node.version.split(".")[:2])) >= (4, 1) else 4096

    async with _broker(node, "", f"token_file={token.path}") as broker:
        if size < limit:
            await broker.connect(timeout=20)
            return
        with pytest.raises(AccessDenied, match=r"the token has (7,|6,9)") as caught:
            await broker.connect(timeout=20)
        assert "RabbitMQ 4.1" in str(caught.value)


async def test_a_login_of_an_internal_user_still_works(node: RabbitMQ) -> None:
    async with _broker(node, "guest:guest@", "") as broker:
        await broker.connect(timeout=20)
        await broker.declare([WorkQueue("own")])
        assert [depth.ready for depth in await broker.stats(["own"])] == [0]


class _Listener:
    """Listens to a foreign queue like a beat, and keeps its messages."""

    def __init__(self, node: RabbitMQ, login: str, query: str) -> None:
        url = f"amqp://{login}127.0.0.1:{node.port}/?{query}"
        self.source = open_source(SourceQueue(url=url, name="orders"))
        self.come: list[str] = []
        self.errors: list[TaskMQError] = []
        self.connections: set[int] = set()

    def _deliver(self, delivery: Delivery) -> None:
        self.come.append(delivery.body.decode())
        delivery.ack()

    async def look(self) -> bool:
        try:
            await self.source.listen(self._deliver)
        except TaskMQError as error:
            self.errors.append(error)
            return False
        self.connections.add(id(self.source._connection))
        return True

    async def follow(self, raw: Raw, *, lifetimes: int) -> None:
        """Consume published messages through `lifetimes` lives of a token."""
        sent, end = 0, time.monotonic() + lifetimes * SECONDS
        while time.monotonic() < end:
            await self.look()
            raw.publish("", "orders", b"%d" % sent)
            sent += 1
            await asyncio.sleep(0.2)
        await until(lambda: len(self.come) == sent)


@pytest.fixture
def orders(node: RabbitMQ) -> Iterator[Raw]:
    """Open a connection of the node's own user, and an empty queue."""
    with Raw(node.url) as raw:
        raw.quorum("orders")
        yield raw
        raw.channel.queue_delete("orders")


@pytest.mark.nightly("tests/integration/test_rabbitmq_oauth2.py::test_the_same_connections_outlive_their_tokens")
async def test_a_source_of_another_system_outlives_its_tokens(
    node: RabbitMQ, token: TokenFile, orders: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token.renew()
    listener = _Listener(node, "", f"token_file={token.path}")
    renewing = asyncio.create_task(_again_and_again(token.renew))
    await listener.follow(orders, lifetimes=3)
    renewing.cancel()
    await listener.source.stop()

    assert listener.errors == []
    assert len(listener.connections) == 1
    assert not any(secret in caplog.text for secret in token.tokens)


@pytest.mark.nightly(
    "tests/integration/test_rabbitmq_oauth2.py::test_a_token_server_is_asked_for_one_token_after_the_other"
)
async def test_a_source_asks_a_token_server_for_one_token_after_the_other(node: RabbitMQ, orders: Raw) -> None:
    with TokenServer(client_id="shop", secret="S3CRET", make=lambda: signed_token(seconds=SECONDS)) as server:
        listener = _Listener(node, "shop:S3CRET@", f"oauth2_token_url={server.url}")
        await listener.follow(orders, lifetimes=3)
        await listener.source.stop()
        count = len(server.handed_out)

    assert listener.errors == []
    assert len(listener.connections) == 1
    assert count >= 3


async def test_a_source_with_a_refused_token_says_so_and_uses_its_successor(
    node: RabbitMQ, token: TokenFile, orders: Raw
) -> None:
    token.renew(seconds=-60)
    listener = _Listener(node, "", f"token_file={token.path}")
    orders.publish("", "orders", b"0")

    assert not await listener.look()
    assert isinstance(listener.errors[0], AccessDenied)
    assert "expired" in str(listener.errors[0])
    assert token.tokens[0] not in str(listener.errors[0])
    token.renew(seconds=60)
    await until(listener.look)
    await until(lambda: listener.come == ["0"])
    await listener.source.stop()


async def test_a_source_without_a_token_gives_the_reason(node: RabbitMQ, token: TokenFile) -> None:
    listener = _Listener(node, "", f"token_file={token.path}")

    assert not await listener.look()
    assert str(token.path) in str(listener.errors[0])
    await listener.source.stop()
