"""TLS, client certificates, and names that need percent-encoding, on real nodes."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import uvloop

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.source import SourceQueue
from taskmq.errors import AccessDenied, BrokerUnavailable
from taskmq.testing.broker_suite.consumers import Consuming
from taskmq.testing.broker_suite.publish import Publishing
from taskmq.testing.broker_suite.settlement import Settling
from taskmq.testing.runner import case
from taskmq_aio_pika import open_source
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase, refusal
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ, TcpProxy
from tests.servers.certificates import Authority, Certificate, tls_listener
from tests.servers.ports import PortLease

pytestmark = pytest.mark.rabbitmq

USER = "shop-worker"
# The HTTP API lists connections some seconds later.
_IS_CONNECTED = (
    f'lists:member(<<"{USER}">>, [User || [{{user, User}}] <- rabbit_networking:connection_info_all([user])]).'
)
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True)
class TlsNode:
    """A node with its TLS port, and the certificates around it."""

    server: RabbitMQ
    port: int
    authority: Authority
    certificate: Certificate
    client: Certificate
    stranger: Certificate
    other_authority: Authority

    def url(self, host: str = "localhost", *, login: str = "", vhost: str = "", **options: object) -> str:
        query = "&".join(f"{name}={quote(str(value))}" for name, value in options.items())
        return f"amqps://{login}{host}:{self.port}/{vhost}?{query}"

    def trusted_url(self, host: str = "localhost", *, login: str = "", vhost: str = "", **options: object) -> str:
        return self.url(host, login=login, vhost=vhost, cafile=self.authority.file, **options)


def _node(folder: Path, *, asks_clients: bool) -> Iterator[TlsNode]:
    folder.chmod(0o755)
    authority, other = Authority(folder / "authority"), Authority(folder / "other")
    certificate = authority.issue("localhost", "::1")
    with PortLease(1) as lease:
        config = {
            **tls_listener(lease.ports[0], authority, certificate, asks_clients=asks_clients),
            "listeners.ssl.2": f"::1:{lease.ports[0]}",
            # A presented certificate is verified.
            "ssl_options.verify": "verify_peer",
            "ssl_cert_login_from": "common_name",
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "EXTERNAL",
        }
        plugins = ("rabbitmq_auth_mechanism_ssl",)
        with RabbitMQ(os.environ.get("TASKMQ_TEST_RABBITMQ"), config=config, plugins=plugins) as server:
            server.http("PUT", f"/api/users/{USER}", {"password_hash": "", "tags": ""})
            server.http("PUT", f"/api/permissions/%2F/{USER}", EVERYTHING)
            yield TlsNode(
                server,
                lease.ports[0],
                authority,
                certificate,
                client=authority.issue("worker.shop", common_name=USER),
                stranger=other.issue("worker.shop", common_name=USER),
                other_authority=other,
            )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    """Start a node that verifies presented client certificates."""
    yield from _node(tmp_path_factory.mktemp("tls"), asks_clients=False)


@pytest.fixture(scope="module")
def strict_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    """Start a node that refuses clients without a certificate."""
    yield from _node(tmp_path_factory.mktemp("strict-tls"), asks_clients=True)


def _connect(url: str, *, timeout: float = 20, look: Callable[[], str] = str) -> str:
    """Return the result of `look` while there is a connection."""

    async def main() -> str:
        broker = open_broker(url, BrokerOptions(name="tls"))
        try:
            await broker.connect(timeout=timeout)
            return await asyncio.to_thread(look)
        finally:
            await broker.aclose()

    return asyncio.run(main())


def _expect_connection(url: str) -> None:
    assert _connect(url, look=lambda: "connected") == "connected"


def _refusal(url: str) -> BrokerUnavailable:
    """Return the reason of a failed connection."""
    with pytest.raises(BrokerUnavailable) as caught:
        _connect(url, timeout=20)
    return caught.value


def test_a_server_with_a_trusted_authority_is_accepted(node: TlsNode) -> None:
    _expect_connection(node.trusted_url())


def test_an_ipv6_host_is_connected_to_and_verified(node: TlsNode) -> None:
    _expect_connection(node.trusted_url("[::1]"))


def test_the_next_host_is_tried_when_one_is_down(node: TlsNode) -> None:
    with PortLease(1) as lease:
        _expect_connection(node.trusted_url(f"localhost:{lease.ports[0]},localhost"))


def test_an_untrusted_authority_is_reported_at_once(node: TlsNode) -> None:
    for url in (node.url(), node.url(cafile=node.other_authority.file)):
        error = _refusal(url)

        assert "not signed by an authority that is trusted here" in str(error)
        assert "?cafile=" in str(error)


def test_a_host_name_missing_from_the_certificate_is_reported_at_once(node: TlsNode) -> None:
    assert "certificate is not for this host" in str(_refusal(node.trusted_url("127.0.0.1")))


def test_one_bad_host_of_two_does_not_keep_the_other_from_being_used(node: TlsNode) -> None:
    for _ in range(4):
        _expect_connection(node.trusted_url(f"127.0.0.1:{node.port},localhost"))


def test_a_plain_port_gets_no_tls(node: TlsNode) -> None:
    url = f"amqps://localhost:{node.server.port}/?cafile={node.authority.file}"

    assert "the port speaks no TLS" in str(_refusal(url))


@pytest.mark.real_time
async def test_plain_amqp_to_a_tls_port_gets_a_hint(node: TlsNode) -> None:
    broker = open_broker(f"amqp://localhost:{node.port}/", BrokerOptions(name="tls"))
    try:
        assert not isinstance(await refusal("amqps://", broker.connect), AccessDenied)
    finally:
        await broker.aclose()


def test_a_wrong_password_is_distinguished_from_a_wrong_certificate(node: TlsNode) -> None:
    error = _refusal(node.trusted_url(login="guest:S3CRET@"))

    assert isinstance(error, AccessDenied)
    assert "check the user, the password" in str(error)
    assert "S3CRET" not in str(error)


def test_a_client_certificate_identifies_the_user(node: TlsNode) -> None:
    url = node.trusted_url(auth="external", certfile=node.client.chain, keyfile=node.client.key)

    assert _connect(url, look=lambda: node.server.evaluate(_IS_CONNECTED)) == "{ok, true}"


@pytest.mark.real_time
async def test_a_source_of_another_system_shows_its_client_certificate(node: TlsNode) -> None:
    url = node.trusted_url(auth="external", certfile=node.client.chain, keyfile=node.client.key)
    with Raw(node.server.url) as raw:
        raw.quorum("orders")
    source = open_source(SourceQueue(url=url, name="orders"))
    try:
        await source.listen(lambda _: None)
        is_connected = await asyncio.to_thread(node.server.evaluate, _IS_CONNECTED)
    finally:
        await source.stop()

    assert is_connected == "{ok, true}"


def test_a_certificate_without_a_user_is_refused(node: TlsNode) -> None:
    nobody = node.authority.issue("worker.shop", common_name="nobody")

    error = _refusal(node.trusted_url(auth="external", certfile=nobody.chain, keyfile=nobody.key))

    assert isinstance(error, AccessDenied)
    assert "create a user with the name in the certificate" in str(error)


@pytest.mark.nightly("tests/integration/test_rabbitmq_tls.py::test_a_client_certificate_identifies_the_user")
def test_a_server_that_requires_a_certificate_is_understood(strict_node: TlsNode) -> None:
    assert "the server wants a client certificate" in str(_refusal(strict_node.trusted_url()))


@pytest.mark.nightly("tests/integration/test_rabbitmq_tls.py::test_a_certificate_without_a_user_is_refused")
def test_a_foreign_client_certificate_is_refused(strict_node: TlsNode) -> None:
    stranger = strict_node.stranger

    error = _refusal(strict_node.trusted_url(certfile=stranger.chain, keyfile=stranger.key))

    assert "the server refuses the client certificate" in str(error)


@pytest.mark.nightly("tests/integration/test_rabbitmq_tls.py::test_a_client_certificate_identifies_the_user")
def test_a_client_certificate_is_accepted_by_a_server_that_requires_one(strict_node: TlsNode) -> None:
    client = strict_node.client

    _expect_connection(strict_node.trusted_url(certfile=client.chain, keyfile=client.key))


def test_an_expired_certificate_is_reported_at_once_and_its_successor_is_used(node: TlsNode) -> None:
    client, ours = node.client, node.certificate
    url = node.trusted_url(certfile=client.chain, keyfile=client.key)
    expired = node.authority.issue("localhost", expires=datetime(2020, 1, 1, tzinfo=UTC))
    successor = node.authority.issue("localhost", "::1")

    _install(node.server, expired, ours)
    assert "the server's certificate has expired" in str(_refusal(url))
    _install(node.server, successor, ours)
    _connect(url)


def _install(server: RabbitMQ, new: Certificate, old: Certificate) -> None:
    """Replace a certificate on a running node."""
    shutil.copy(new.chain, old.chain)
    shutil.copy(new.key, old.key)
    server.evaluate("ssl:clear_pem_cache().")


@pytest.fixture(scope="module")
def vhost(node: TlsNode) -> str:
    return urlsplit(node.server.create_vhost()).path.removeprefix("/")


class OverTls(RabbitMQCase):
    """A broker with the name "cut off" connects through the proxy, which sees TLS."""

    @pytest.fixture(autouse=True)
    def _server(self, node: TlsNode, vhost: str) -> Iterator[None]:
        self.server = node.server
        self.vhost = vhost
        self.process_url = node.trusted_url(vhost=vhost, login="guest:guest@") + self.options
        with TcpProxy(node.port) as self.proxy:
            yield

    def open_broker(self, name: str = "") -> RabbitMQBroker:
        assert self.process_url is not None
        url = urlsplit(self.process_url)
        if name == CUT_OFF:
            url = url._replace(netloc=f"guest:guest@localhost:{self.proxy.port}")
        broker = open_broker(url.geturl(), BrokerOptions(name=name or "tls"))
        assert isinstance(broker, RabbitMQBroker)
        return broker

    @case
    async def test_large_and_many_messages_pass_in_both_directions(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        texts = [f"{number:04}" + "x" * (number % 7) * 50_000 for number in range(150)]
        inbox, _ = await self.consume(broker, queue, prefetch=50)

        sending = asyncio.create_task(self.send(broker, queue, *texts))
        received = [delivery.body.decode() for delivery in await inbox.take_and_ack(150)]

        await sending
        assert sorted(received) == sorted(texts)


class TestLargeMessagesOverTls(OverTls):
    pass


@pytest.mark.nightly("tests/conformance/test_rabbitmq.py")
class TestTheContractOverTls(OverTls, Publishing, Consuming):
    pass


@pytest.mark.matrix
class TestTheContractOverTlsWithUvloop(OverTls, Settling):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


class TestPlainWritesOverTls(OverTls):
    options = "&wire=plain"


ODD = ["~!@#$%^&*()_+-=", "`[]{}|;':\",./<>?\\", "%2F%25", "ünï ☃ 名前", "a/b:c@d,e?f#g", " "]


@pytest.mark.parametrize("odd", ODD)
def test_any_user_password_and_vhost_can_be_percent_encoded(rabbitmq_server: RabbitMQ, odd: str) -> None:
    user, password, vhost = f"u{odd}", f"p{odd}", f"v{odd}"
    user_path, vhost_path = f"/api/users/{quote(user, safe='')}", f"/api/vhosts/{quote(vhost, safe='')}"
    rabbitmq_server.http("PUT", user_path, {"password": password, "tags": ""})
    rabbitmq_server.http("PUT", vhost_path, {})
    permissions = f"/api/permissions/{quote(vhost, safe='')}/{quote(user, safe='')}"
    rabbitmq_server.http("PUT", permissions, EVERYTHING)
    encoded = [quote(text, safe="") for text in (user, password, vhost)]
    try:
        _expect_connection(f"amqp://{encoded[0]}:{encoded[1]}@127.0.0.1:{rabbitmq_server.port}/{encoded[2]}")
    finally:
        rabbitmq_server.http("DELETE", user_path)
        rabbitmq_server.http("DELETE", vhost_path)
