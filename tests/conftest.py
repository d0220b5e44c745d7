"""The servers of the test session; `tests.servers` tells where they come from."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from tests.servers import PostgreSQL, RabbitMQ, Redis, StartRabbitMQ


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMQ]:
    """One node for the session: never stop or kill this one, ask for `own_rabbitmq`."""
    with RabbitMQ(_rabbitmq_version()) as server:
        yield server


@pytest.fixture
def amqp_url(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    """A vhost of the test's own."""
    url = rabbitmq_server.create_vhost()
    yield url
    rabbitmq_server.delete_vhost(url)


@pytest.fixture(scope="session")
def shared_amqp_url(rabbitmq_server: RabbitMQ) -> str:
    """One vhost for all tests that use names of their own and leave no queue behind."""
    return rabbitmq_server.create_vhost()


@pytest.fixture
def own_rabbitmq() -> Iterator[StartRabbitMQ]:
    """For tests that stop, kill or configure their broker."""
    with ExitStack() as servers:

        def start(version: str | None = None, *, config: Mapping[str, str] | None = None) -> RabbitMQ:
            return servers.enter_context(RabbitMQ(version or _rabbitmq_version(), config=config))

        yield start


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """An empty database."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgreSQL]:
    with PostgreSQL() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgreSQL) -> Iterator[str]:
    """A database of the test's own."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, those that share what is made once for a module stay together."""
    for item in items:
        definitions = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - of pytest's private parts
        if any(each.scope == "module" for found in definitions.values() for each in found):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _rabbitmq_version() -> str | None:
    return os.environ.get("TASKMQ_TEST_RABBITMQ")
