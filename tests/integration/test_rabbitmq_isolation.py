"""A virtual host for each tenant, created by `taskmq topology isolate`: what its users can and cannot access."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import pika  # type: ignore[import-untyped]
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAccessDeniedError  # type: ignore[import-untyped]

from taskmq import TaskMQ, WorkQueue
from taskmq.model.topology import PARKING
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq.model import delay_ladder as delay
from tests.cli.kit import Result, run_here
from tests.integration.raw_rabbitmq import Raw
from tests.servers import RabbitMQ

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(180)]

SHOP = """
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(name="shop", queues=[WorkQueue("orders")])
"""


@dataclass
class Instance:
    """A node, a folder with an app, and tenants that are deleted after the test."""

    folder: Path
    server: RabbitMQ
    made: list[str]

    def isolate(self, tenant: str, *options: str, login: str = "guest:guest") -> Result:
        at = urlsplit(self.server.management_url)
        url = f"amqp://{login}@127.0.0.1:{self.server.port}/?management=http://{at.hostname}:{at.port}"
        self.made.append(tenant)
        return run_here(self.folder, "--app", "shop:app", "--url", url, "topology", "isolate", tenant, *options)

    def urls(self, tenant: str, *options: str) -> dict[str, str]:
        result = self.isolate(tenant, *options, "-o", "json")
        assert result.code == 0, result.err
        return {row["role"]: row["url"] for row in json.loads(result.out)}

    def names(self, what: str) -> set[str]:
        found = self.server.http("GET", f"/api/{what}")
        assert isinstance(found, list)
        return {each["name"] for each in found}


@pytest.fixture
def instance(tmp_path: Path, rabbitmq_server: RabbitMQ) -> Iterator[Instance]:
    (tmp_path / "shop.py").write_text(SHOP)
    instance = Instance(tmp_path, rabbitmq_server, [])
    yield instance
    users = instance.names("users")
    for tenant in {*instance.made} & instance.names("vhosts"):
        rabbitmq_server.http("DELETE", f"/api/vhosts/{quote(tenant, safe='')}")
    for user in users:
        if user.rpartition("-")[0] in instance.made:
            rabbitmq_server.http("DELETE", f"/api/users/{quote(user, safe='')}")


def denies(url: str, vhost: str | None = None) -> bool:
    """Whether the virtual host refuses the login."""
    there = urlsplit(url) if vhost is None else urlsplit(url)._replace(path=f"/{quote(vhost, safe='')}")
    try:
        pika.BlockingConnection(pika.URLParameters(there._replace(query="").geturl())).close()
    except ProbableAccessDeniedError:
        return True
    return False


def is_refused(url: str, exchange: str, queue: str) -> bool:
    with Raw(urlsplit(url)._replace(query="").geturl()) as raw:
        try:
            raw.publish(exchange, queue)
        except ChannelClosedByBroker as error:
            return int(error.reply_code) == 403
    return False


def test_a_tenant_works_in_its_own_virtual_host(instance: Instance) -> None:
    urls = instance.urls("north")
    ran: list[int] = []

    def app(url: str) -> TaskMQ:
        app = TaskMQ(url, name="shop", queues=[WorkQueue("orders")])

        @app.task(name="shop.charge", queue="orders")
        async def charge(cents: int) -> None:
            ran.append(cents)

        return app

    async def main() -> None:
        async with app(urls["producer"]) as producer:
            charge = producer.tasks["shop.charge"]
            await charge.asend(1)
            await charge.options(priority=9).asend(2)
            await charge.options(delay="200ms").asend(3)
        async with app(urls["worker"]) as worker:
            while len(ran) < 3:
                await Worker(worker, WorkerConfig(burst=True)).run()

    asyncio.run(main())
    assert set(ran) == {1, 2, 3}


def test_users_of_a_tenant_reach_nothing_of_others(instance: Instance) -> None:
    urls, others = instance.urls("north"), instance.urls("south")

    for role in ("producer", "worker"):
        assert not denies(urls[role])
        assert denies(urls[role], "south")
        assert denies(urls[role], "/")
        assert denies(others[role], "north")
        # Nor objects of other roles in their own.
        for exchange in ("", "taskmq.jobs", "taskmq.unroutable", delay.DELIVER, "amq.topic"):
            assert is_refused(urls[role], exchange, PARKING), (role, exchange)
    assert instance.names("queues/south") == instance.names("queues/north")


def test_isolation_can_be_repeated_and_keeps_passwords(instance: Instance) -> None:
    urls = instance.urls("north")
    instance.server.http("DELETE", "/api/queues/north/orders")

    again = instance.urls("north", "--role", "worker", "--role", "beat")

    assert "orders" in instance.names("queues/north")
    assert ":" not in urlsplit(again["worker"]).netloc.partition("@")[0]
    assert not denies(urls["worker"])
    assert not denies(again["beat"])


def test_a_dry_run_prints_all_steps_and_changes_nothing(instance: Instance) -> None:
    result = instance.isolate("north", "--dry-run")

    assert result.code == 0, result.err
    for line in (
        "rabbitmqctl add_vhost -- north",
        "rabbitmqctl add_user -- north-producer",
        "set_permissions -p north",
    ):
        assert line in result.out
    assert "north" not in instance.names("vhosts")
    assert not {"north-producer", "north-worker"} & instance.names("users")


def test_a_user_with_more_permissions_belongs_to_no_tenant(instance: Instance) -> None:
    instance.made.append("north")
    put = partial(instance.server.http, "PUT")
    put("/api/users/north-worker", {"password": "p", "tags": ""})
    put("/api/permissions/%2F/north-worker", {"configure": "", "write": ".*", "read": ""})

    result = instance.isolate("north")

    assert result.code != 0
    assert "user 'north-worker' exists and has the virtual hosts '/'" in result.err
    assert "north" not in instance.names("vhosts")
    put("/api/users/north-worker", {"password": "p", "tags": "administrator"})
    instance.server.http("DELETE", "/api/permissions/%2F/north-worker")
    assert "exists and has the tags" in instance.isolate("north").err


def test_only_an_administrator_can_isolate_a_tenant(instance: Instance) -> None:
    instance.made.append("north")
    instance.server.http("PUT", "/api/users/north-operator", {"password": "p", "tags": "policymaker"})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    instance.server.http("PUT", "/api/permissions/%2F/north-operator", everything)

    result = instance.isolate("north", login="north-operator:p")

    assert result.code != 0
    assert "administrator" in result.err
    assert "north" not in instance.names("vhosts")
