"""Servers in containers for tests, by testcontainers: `pip install 'taskmq[testcontainers]'`.

    with RabbitMQContainer() as rabbitmq, RedisContainer() as redis:
        app = TaskMQ(rabbitmq.url, state=redis.url)

- `RabbitMQContainer`, `RedisContainer`, `PostgresContainer`: one server each, as a context manager.
- `taskmq.testing.containers.fixtures`: pytest's fixtures `rabbitmq_url`, `redis_url`, `postgres_url`.

All need a container engine: Docker, or Podman behind `podman system service` and `$DOCKER_HOST`.
"""

from taskmq.testing.containers.container import Container, engine_answers
from taskmq.testing.containers.servers import PostgresContainer, RabbitMQContainer, RedisContainer

__all__ = ["Container", "PostgresContainer", "RabbitMQContainer", "RedisContainer", "engine_answers"]
