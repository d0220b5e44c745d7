"""RabbitMQ's HTTP API, on a real node."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.errors import AccessDenied
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq.testing.runner import eventually
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from taskmq_rabbitmq.admin.http_api import (
    Management,
    ManagementNotFound,
    ManagementRefused,
    ManagementUnavailable,
    segment,
)
from taskmq_rabbitmq.model.url import parse_url
from tests.servers import RabbitMQ
from tests.servers.ports import PortLease

pytestmark = pytest.mark.rabbitmq


def management(amqp_url: str, server: RabbitMQ, *, login: str = "guest:guest") -> Management:
    url = urlsplit(amqp_url)
    at = urlsplit(server.management_url)
    where = f"{url.scheme}://{login}@{url.hostname}:{url.port}{url.path}"
    return Management(parse_url(f"{where}?management=http://{at.hostname}:{at.port}"))


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(main())


def test_an_object_is_put_read_and_deleted_whatever_its_name(fresh_amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    api = management(fresh_amqp_url, rabbitmq_server)
    path = f"queues/{api.vhost}/{segment('a/b c?#ä%2F')}"

    async def main() -> tuple[Any, Any]:
        await api.put(path, {"durable": True, "arguments": {"x-queue-type": "quorum"}})
        found = await api.get(path, disable_stats="true")
        await api.delete(path)
        return found, await api.get(f"queues/{api.vhost}")

    found, after = run(main)

    assert found["name"] == "a/b c?#ä%2F"
    assert found["arguments"]["x-queue-type"] == "quorum"
    assert after == []


def test_a_missing_object_is_not_found(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    api = management(amqp_url, rabbitmq_server)

    with pytest.raises(ManagementNotFound, match="nothing"):
        run(lambda: api.get(f"queues/{api.vhost}/nothing"))


def test_an_invalid_request_is_refused_with_the_reason_of_the_broker(
    amqp_url: str, rabbitmq_server: RabbitMQ
) -> None:
    api = management(amqp_url, rabbitmq_server)

    with pytest.raises(ManagementRefused, match="nonsense") as caught:
        run(lambda: api.put(f"queues/{api.vhost}/q", {"arguments": {"x-queue-type": "nonsense"}}))

    assert caught.value.status == 400


def test_a_wrong_password_is_denied_and_never_shown(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    api = management(amqp_url, rabbitmq_server, login="guest:S3CRET")

    with pytest.raises(AccessDenied, match="'guest'") as caught:
        run(lambda: api.get("whoami"))

    assert "S3CRET" not in f"{caught.value}{api!r}{api.address}"


def test_a_node_without_the_plugin_is_unavailable_with_a_remedy() -> None:
    with PortLease(1) as lease:
        api = Management(parse_url(f"amqp://u:S3CRET@127.0.0.1/v?management=http://127.0.0.1:{lease.ports[0]}"))

        with pytest.raises(ManagementUnavailable, match="rabbitmq-plugins enable rabbitmq_management") as caught:
            run(lambda: api.get("overview"))

    assert str(lease.ports[0]) in str(caught.value)
    assert "S3CRET" not in str(caught.value)


def _guess_management(amqp_url: str, server: RabbitMQ, cluster: str) -> Management:
    """Return the API found without an address in the URL."""

    async def cluster_name() -> str:
        return cluster

    port = urlsplit(server.management_url).port
    assert port is not None
    return Management(parse_url(amqp_url), cluster_name=cluster_name, ports=(port, port))


def test_a_server_at_the_usual_port_is_used_if_it_is_in_the_same_cluster(
    amqp_url: str, rabbitmq_server: RabbitMQ
) -> None:
    name = run(lambda: management(amqp_url, rabbitmq_server).get("overview"))["cluster_name"]
    api = _guess_management(amqp_url, rabbitmq_server, name)

    assert run(lambda: api.get("whoami"))["name"] == "guest"
    assert run(api.clock_ms) is not None


def test_another_rabbitmq_at_the_usual_port_is_not_asked(fresh_amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    api = _guess_management(fresh_amqp_url, rabbitmq_server, "somebody@else")

    with pytest.raises(ManagementUnavailable, match=r"another RabbitMQ, .*\?management=http"):
        run(lambda: api.put(f"queues/{api.vhost}/wrong", {}))

    assert run(api.clock_ms) is None
    assert run(lambda: management(fresh_amqp_url, rabbitmq_server).get(f"queues/{api.vhost}")) == []


def test_unacked_and_delayed_messages_can_be_counted(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    at = urlsplit(rabbitmq_server.management_url)

    async def main(url: str) -> tuple[Mapping[str, int] | None, int]:
        broker = open_broker(url, BrokerOptions(name="test"))
        assert isinstance(broker, RabbitMQBroker)
        await broker.declare([WorkQueue("orders")])
        for due in (None, None, int(time.time() * 1000) + 3_600_000):
            await broker.publish(message("orders", "x", due=due), timeout=10)
        taken = asyncio.Queue[Delivery]()
        await broker.consume([Subscription("orders", 10)], taken.put_nowait)
        for _ in range(2):
            await taken.get()

        async def in_hand() -> int | None:
            found = await broker.count_unsettled()
            return None if found is None else found.get("orders")

        # Counted every five seconds.
        await eventually(in_hand, None if "127.0.0.1:1" in url else 2, within=30)
        counts = await broker.count_unsettled(), await broker.count_delayed()
        await broker.aclose()
        return counts

    unsettled, delayed = run(lambda: main(f"{amqp_url}?management=http://{at.hostname}:{at.port}"))
    assert unsettled is not None
    assert (unsettled["orders"], delayed) == (2, 1)
    assert run(lambda: main(f"{amqp_url}?management=http://127.0.0.1:1")) == (None, 2)


def test_the_broker_knows_its_cluster(amqp_url: str, rabbitmq_server: RabbitMQ) -> None:
    name = run(lambda: management(amqp_url, rabbitmq_server).get("overview"))["cluster_name"]

    async def main() -> str | None:
        broker = open_broker(amqp_url, BrokerOptions(name="test"))
        assert isinstance(broker, RabbitMQBroker)
        try:
            await broker.connect(timeout=10)
            return broker.cluster_name
        finally:
            await broker.aclose()

    assert run(main) == name


def test_a_proxy_of_the_environment_is_not_used(
    amqp_url: str, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    api = management(amqp_url, rabbitmq_server)

    assert run(lambda: api.get("whoami"))["name"] == "guest"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://u:p@a:7,b:8/v", "http://a:15672, http://b:15672"),
        ("amqps://u:p@a/v", "https://a:15671"),
        ("amqp://u:p@[::1]:5/v", "http://[::1]:15672"),
        (f"amqp://u:p@a/v?management={quote('https://m.example/rabbit/')}", "https://m.example/rabbit"),
    ],
)
def test_the_address_of_the_api_is_derived_from_the_url(url: str, address: str) -> None:
    assert Management(parse_url(url)).address == address
