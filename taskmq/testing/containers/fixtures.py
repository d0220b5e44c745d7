"""Pytest fixtures: a server for the session, and an empty part of it for each test.

    # conftest.py
    pytest_plugins = ["taskmq.testing.containers.fixtures"]

A server starts when the first test asks for it. To choose the image, set `$TASKMQ_RABBITMQ_IMAGE`,
`$TASKMQ_REDIS_IMAGE` or `$TASKMQ_POSTGRES_IMAGE`, or define a fixture with the container's name.
"""

from collections.abc import Iterator

import pytest

from taskmq.testing.containers.servers import PostgresContainer, RabbitMQContainer, RedisContainer


@pytest.fixture(scope="session")
def rabbitmq_container() -> Iterator[RabbitMQContainer]:
    """RabbitMQ server of the session; a test that stops or kills it must restart it."""
    with RabbitMQContainer() as container:
        yield container


@pytest.fixture
def rabbitmq_url(rabbitmq_container: RabbitMQContainer) -> Iterator[str]:
    """AMQP URL of a virtual host for one test."""
    with rabbitmq_container.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def redis_container() -> Iterator[RedisContainer]:
    """Redis server of the session; a test that stops or kills it must restart it."""
    with RedisContainer() as container:
        yield container


@pytest.fixture
def redis_url(redis_container: RedisContainer) -> Iterator[str]:
    """URL of a Redis that was emptied for the test."""
    with redis_container.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_container() -> Iterator[PostgresContainer]:
    """PostgreSQL server of the session; a test that stops or kills it must restart it."""
    with PostgresContainer() as container:
        yield container


@pytest.fixture
def postgres_url(postgres_container: PostgresContainer) -> Iterator[str]:
    """URL of an empty database for one test, without the job store's tables."""
    with postgres_container.fresh() as url:
        yield url
