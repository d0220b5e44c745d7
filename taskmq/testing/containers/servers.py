"""Containers of RabbitMQ, Redis and PostgreSQL, from their published images."""

import contextlib
import json
import os
import secrets
import socket
import urllib.request
from base64 import b64encode
from collections.abc import Generator, Sequence
from typing import Final

from taskmq.testing.containers.container import Container

_PATIENCE: Final = 5.0
_AMQP_HEADER: Final = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME: Final = b"\x01"
_PASSWORD: Final = "test"  # noqa: S105 - of a server that only this machine reaches


class RabbitMQContainer(Container):
    """RabbitMQ with its management plugin, which is needed to detect that it is ready.

    Args:
        image: an image with the plugin; `$TASKMQ_RABBITMQ_IMAGE` unless given, else `rabbitmq:4-management`.
        ports: ports of this machine for AMQP and the management API; free ones unless given.
    """

    def __init__(self, image: str | None = None, *, ports: Sequence[int] = ()) -> None:
        super().__init__(
            _image(image, "TASKMQ_RABBITMQ_IMAGE", "rabbitmq:4-management"), inner_ports=(5672, 15672), ports=ports
        )

    @property
    def url(self) -> str:
        """The AMQP URL of the default virtual host."""
        host, port = self._at(0)
        return f"amqp://guest:guest@{host}:{port}/"

    @property
    def management_url(self) -> str:
        """The root of the management API, with user and password."""
        host, port = self._at(1)
        return f"http://guest:guest@{host}:{port}"

    @contextlib.contextmanager
    def fresh(self) -> Generator[str]:
        """Provide the URL of a new virtual host, deleted at the end."""
        name = f"test-{secrets.token_hex(6)}"
        self._manage("PUT", f"vhosts/{name}")
        self._manage("PUT", f"permissions/{name}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
        try:
            yield f"{self.url}{name}"
        finally:
            self._manage("DELETE", f"vhosts/{name}")

    def _answers(self) -> bool:
        # The engine's proxy accepts connections before the server does, so wait for bytes from the server.
        with socket.create_connection(self._at(0), timeout=_PATIENCE) as connection:
            connection.sendall(_AMQP_HEADER)
            if connection.recv(1) != _METHOD_FRAME:
                return False
        self._manage("GET", "overview")
        return True

    def _manage(self, method: str, path: str, body: object = None) -> None:
        host, port = self._at(1)
        request = urllib.request.Request(
            f"http://{host}:{port}/api/{path}",
            data=None if method == "GET" else json.dumps(body or {}).encode(),
            method=method,
            headers={
                "Authorization": f"Basic {b64encode(b'guest:guest').decode()}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE):  # noqa: S310 - the container's own address
            pass


class RedisContainer(Container):
    """Redis; acknowledged writes survive `kill` and `start`.

    Args:
        image: the image; `$TASKMQ_REDIS_IMAGE` unless given, else `redis:7`.
        ports: a port of this machine; a free one unless given.
        options: options of `redis-server`.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        ports: Sequence[int] = (),
        options: Sequence[str] = ("--appendonly", "yes"),
    ) -> None:
        super().__init__(
            _image(image, "TASKMQ_REDIS_IMAGE", "redis:7"),
            inner_ports=(6379,),
            ports=ports,
            command=("redis-server", "--save", "", *options),
        )

    @property
    def url(self) -> str:
        """The URL of database 0."""
        host, port = self._at(0)
        return f"redis://{host}:{port}/0"

    @contextlib.contextmanager
    def fresh(self) -> Generator[str]:
        """Delete everything in the server, and provide its URL."""
        if not self._says(b"FLUSHALL", b"+OK"):
            raise RuntimeError(f"{self!r} refused FLUSHALL")
        yield self.url

    def _answers(self) -> bool:
        return self._says(b"PING", b"+PONG")

    def _says(self, command: bytes, answer: bytes) -> bool:
        with socket.create_connection(self._at(0), timeout=_PATIENCE) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(len(answer)) == answer


class PostgresContainer(Container):
    """PostgreSQL with the superuser `postgres`.

    Args:
        image: the image; `$TASKMQ_POSTGRES_IMAGE` unless given, else `postgres:17`.
        ports: a port of this machine; a free one unless given.
    """

    def __init__(self, image: str | None = None, *, ports: Sequence[int] = ()) -> None:
        super().__init__(
            _image(image, "TASKMQ_POSTGRES_IMAGE", "postgres:17"),
            inner_ports=(5432,),
            ports=ports,
            env={"POSTGRES_PASSWORD": _PASSWORD},
        )

    @property
    def url(self) -> str:
        """The URL of the database `postgres`."""
        return self._url_of("postgres")

    @contextlib.contextmanager
    def fresh(self) -> Generator[str]:
        """Provide the URL of a new empty database, dropped at the end."""
        name = f"test_{secrets.token_hex(6)}"
        self._sql(f"CREATE DATABASE {name}")
        try:
            yield self._url_of(name)
        finally:
            self._sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _url_of(self, database: str) -> str:
        host, port = self._at(0)
        return f"postgresql://postgres:{_PASSWORD}@{host}:{port}/{database}"

    def _answers(self) -> bool:
        # Over TCP: during the image's first start the server listens on its socket only.
        try:
            self.run("pg_isready", "-q", "-h", "127.0.0.1", "-U", "postgres")
        except RuntimeError:
            return False
        return True

    def _sql(self, statement: str) -> None:
        self.run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-c", statement)


def _image(given: str | None, variable: str, default: str) -> str:
    return given or os.environ.get(variable) or default
