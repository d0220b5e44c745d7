"""Connections of redis-py as this package uses them: without its retries, pools and timeouts."""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from redis.asyncio import Connection as _Plain
from redis.asyncio import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from taskmq.contracts.server_url import Host
from taskmq_redis.link.call import Reply
from taskmq_redis.url import Endpoint

_LONGEST_NAME: Final = 100
_CLOSING: Final = 1.0

Target = Host | str


class Connection(Protocol):
    """The part of redis-py's connections that this package uses."""

    async def connect(self) -> None: ...

    async def disconnect(self, *, nowait: bool = False) -> None: ...

    async def send_packed_command(self, command: Iterable[bytes], *, check_health: bool = True) -> None: ...

    async def read_response(self) -> Reply:
        """Return the next reply; an error of the server is raised."""
        ...


def targets_of(endpoint: Endpoint) -> list[Target]:
    """Return the targets of the endpoint: hosts, or a socket's path."""
    return list(endpoint.hosts) if endpoint.path is None else [endpoint.path]


def new_connection(endpoint: Endpoint, target: Target, *, name: str) -> Connection:
    """Return a connection that is not open yet.

    Args:
        name: the name that `CLIENT LIST` shows.
    """
    options: dict[str, Any] = {
        "username": endpoint.user or None,
        "password": endpoint.password or None,
        "db": endpoint.database,
        "client_name": re.sub(r"[^\x21-\x7e]", "-", name)[:_LONGEST_NAME] or None,
        "protocol": 2,
        # Only the caller's deadline applies.
        "socket_timeout": None,
        "socket_connect_timeout": endpoint.timeout,
        "retry": Retry(NoBackoff(), 0),
    }
    if isinstance(target, str):
        return cast("Connection", UnixDomainSocketConnection(path=target, **options))
    options.update(host=target.name, port=target.port, socket_keepalive=True)
    if endpoint.tls is None:
        return cast("Connection", _Plain(**options))
    tls = SSLConnection(
        ssl_cert_reqs="required",
        ssl_check_hostname=True,
        ssl_ca_certs=endpoint.tls.cafile,
        ssl_certfile=endpoint.tls.certfile,
        ssl_keyfile=endpoint.tls.keyfile or endpoint.tls.certfile,
        **options,
    )
    return cast("Connection", tls)


async def close(connection: Connection) -> None:
    """Close a connection cleanly, within a second at most. A connection that is not open may be passed."""
    with suppress(RedisError, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            # Awaited, because TLS sends a close notification first.
            await connection.disconnect(nowait=False)


async def abandon(connection: Connection) -> None:
    """Drop a connection that is no longer usable."""
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


async def is_stale(connection: Connection) -> bool:
    """Whether data arrived without a request, which is usually the end of the connection."""
    # The name since redis-py 8, and the earlier one.
    look = getattr(connection, "can_read", None) or getattr(connection, "can_read_destructive")  # noqa: B009 - untyped
    try:
        return bool(await look())
    except (RedisError, OSError):
        return True
