"""OAuth 2: tokens of a few seconds on a real node that believes them."""

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
from taskmq.errors import AccessDenied, SendError
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.rabbitmq_case import refusal
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
    """A token's file, as whoever renews it sees it."""

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
    """As whoever renews it does, on a clock of its own."""
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
        await _work(broker, lifetimes=3)
        renewing.cancel()
        assert _generations(broker) == (1, 1)

    assert not [record for record in caplog.records if record.levelno >= logging.WARNING and "token" in record.msg]
    assert not any(secret in caplog.text for secret in token.tokens)


async def test_a_token_server_is_asked_for_one_token_after_the_other(node: RabbitMQ) -> None:
    with TokenServer(client_id="shop", secret="S3CRET", make=lambda: signed_token(seconds=SECONDS)) as server:
        async with _broker(node, "shop:S3CRET@", f"oauth2_token_url={server.url}") as broker:
            await _work(broker, lifetimes=3)
            assert _generations(broker) == (1, 1)

    assert len(server.handed_out) >= 3


def test_a_token_server_that_is_away_at_first_is_waited_for(node: RabbitMQ) -> None:
    async def main() -> None:
        async with _broker(node, "shop:S3CRET@", f"oauth2_token_url={server.url}") as broker:
            assert not isinstance(await refusal("answered 503", broker.connect), AccessDenied)
            server.answer = (200, None)
            await broker.connect(timeout=20)

    with TokenServer(client_id="shop", secret="S3CRET") as server:
        server.answer = (503, b"")
        asyncio.run(main())


async def test_a_token_that_was_not_renewed_is_refused_and_its_successor_is_used(
    node: RabbitMQ, token: TokenFile
) -> None:
    token.renew(seconds=5)

    async with _broker(node, "", f"token_file={token.path}") as broker:
        await broker.declare([WorkQueue("oauth.expired")])
        error = await _first_refusal(broker)
        assert "expired" in str(error)
        assert token.tokens[0] not in str(error)
        token.renew(seconds=60)

        async def is_taken() -> bool:
            try:
                await broker.publish(message("oauth.expired", "after"), timeout=5)
            except SendError:
                return False
            return True

        await until(is_taken)


async def _first_refusal(broker: RabbitMQBroker) -> AccessDenied:
    """3.10 refuses what is new to a connection whose token has expired, later versions close the connection."""
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
async def test_a_token_that_is_not_accepted_is_a_refusal(
    node: RabbitMQ, token: TokenFile, make: Callable[[], str], reason: str
) -> None:
    secret = make()
    token.write(secret)

    async with _broker(node, "", f"token_file={token.path}") as broker:
        with pytest.raises(AccessDenied, match=reason) as caught:
            await broker.connect(timeout=20)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("size", [3000, 3500, 7000, 7600])
async def test_a_token_fits_into_the_login_or_is_said_to_be_too_large(
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


async def test_a_login_of_the_node_s_own_users_still_works(node: RabbitMQ) -> None:
    async with _broker(node, "guest:guest@", "") as broker:
        await broker.connect(timeout=20)
        await broker.declare([WorkQueue("own")])
        assert [depth.ready for depth in await broker.stats(["own"])] == [0]
