"""Pytest's fixtures: a server for the session, and an empty part of it for each test.

    # conftest.py
    pytest_plugins = ["taskmq.testing.containers.fixtures"]

A server starts when the first test asks for it. To choose the image, set `$TASKMQ_RABBITMQ_IMAGE`,
`$TASKMQ_REDIS_IMAGE` or `$TASKMQ_POSTGRES_IMAGE`, or define a fixture of the container's name.
"""

from collections.abc import Iterator

import pytest

from taskmq.testing.containers.servers import PostgresContainer, RabbitMQContainer, RedisContainer

__all__ = [
    "postgres_container",
    "postgres_url",
    "rabbitmq_container",
    "rabbitmq_url",
    "redis_container",
    "redis_url",
]


@pytest.fixture(scope="session")
def rabbitmq_container() -> Iterator[RabbitMQContainer]:
    """The RabbitMQ of the session; a test that stops or kills it starts it again."""
    with RabbitMQContainer() as container:
        yield container


@pytest.fixture
def rabbitmq_url(rabbitmq_container: RabbitMQContainer) -> Iterator[str]:
    """The AMQP URL of a virtual host of the test's own."""
    with rabbitmq_container.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def redis_container() -> Iterator[RedisContainer]:
    """The Redis of the session; a test that stops or kills it starts it again."""
    with RedisContainer() as container:
        yield container


@pytest.fixture
def redis_url(redis_container: RedisContainer) -> Iterator[str]:
    """The URL of a Redis that was emptied for the test."""
    with redis_container.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_container() -> Iterator[PostgresContainer]:
    """The PostgreSQL of the session; a test that stops or kills it starts it again."""
    with PostgresContainer() as container:
        yield container


@pytest.fixture
def postgres_url(postgres_container: PostgresContainer) -> Iterator[str]:
    """The URL of an empty database of the test's own, without the job store's tables."""
    with postgres_container.fresh() as url:
        yield url
