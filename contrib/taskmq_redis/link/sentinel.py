"""Connections to the primary that Redis Sentinels name."""

import asyncio
from collections.abc import Iterable
from typing import Final, cast

from redis.exceptions import RedisError

from taskmq.contracts.server_url import Host
from taskmq_redis.link.call import Reply, pack
from taskmq_redis.link.connect import Connection, abandon, is_stale, new_connection
from taskmq_redis.url import Endpoint

# The share of a call's time that a sentinel gets before the next one is asked.
_SHARE: Final = 3
_SWITCHED: Final = "+switch-master"
_LISTENS: Final = 10.0
_PAUSE: Final = 0.5


class NotSent(RedisError):
    """Raised when commands were not sent, since another server is now the primary."""


class PrimaryConnection:
    """A connection to the primary; each time it is opened, it asks the sentinels for the address.

    It ends as soon as the sentinels name another primary. Until a sentinel reaches it, the old one may accept writes
    for some seconds, which are lost once it follows the new one.

    Args:
        endpoint: its hosts are the sentinels.
        first: index of the sentinel to ask first.
        name: the name that `CLIENT LIST` shows.
    """

    def __init__(self, endpoint: Endpoint, *, first: int, name: str) -> None:
        self._endpoint = endpoint
        self._first = first
        self._name = name
        self._connection: Connection | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_over = False

    async def connect(self) -> None:
        """Connect to the primary.

        Raises:
            RedisError: no sentinel names a primary, or the one named is not promoted yet.
        """
        primary = await self._find()
        connection = self._connection = new_connection(self._endpoint, primary, name=self._name)
        await connection.connect()
        await _send(connection, "ROLE")
        role = cast("list[bytes]", await connection.read_response())[0]
        if role != b"master":
            raise RedisError(f"{primary} is not the primary yet")
        self._watching = asyncio.get_running_loop().create_task(self._watch(primary))

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Close the connection if it is open."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        if self._connection is not None:
            await self._connection.disconnect(nowait=nowait)

    async def send_packed_command(self, command: Iterable[bytes], *, check_health: bool = True) -> None:
        """Send commands to the primary.

        Raises:
            NotSent: the server is no longer the primary.
        """
        assert self._connection is not None
        if self._is_over:
            raise NotSent("another server is now the primary")
        await self._connection.send_packed_command(command, check_health=check_health)

    async def read_response(self) -> Reply:
        """Return the next reply; an error of the primary is raised."""
        assert self._connection is not None
        return await self._connection.read_response()

    async def can_read(self) -> bool:
        """Whether data arrived without a request."""
        assert self._connection is not None
        return self._is_over or await is_stale(self._connection)

    async def _find(self) -> Host:
        problems: list[str] = []
        for sentinel in self._sentinels():
            try:
                async with asyncio.timeout(self._endpoint.timeout / _SHARE):
                    found = await self._ask(sentinel)
            except TimeoutError:
                problems.append(f"{sentinel} does not answer")
            except (RedisError, OSError) as error:
                problems.append(f"{sentinel}: {error}")
            else:
                if found is not None:
                    return found
                problems.append(f"{sentinel} knows no {self._endpoint.service!r}")
        raise RedisError(f"no sentinel names a primary ({'; '.join(problems)})")

    async def _ask(self, sentinel: Host) -> Host | None:
        connection = new_connection(self._endpoint.of_sentinels, sentinel, name="")
        try:
            await connection.connect()
            await _send(connection, "SENTINEL", "get-master-addr-by-name", self._endpoint.service)
            answer = cast("list[bytes] | None", await connection.read_response())
        finally:
            await abandon(connection)
        return None if answer is None else Host(answer[0].decode(), int(answer[1]))

    async def _watch(self, primary: Host) -> None:
        """End the connection once the sentinels name another primary."""
        while True:
            for sentinel in self._sentinels():
                try:
                    if await self._has_new_primary(sentinel, primary):
                        self._is_over = True
                        assert self._connection is not None
                        await abandon(self._connection)
                        return
                except (RedisError, OSError, TimeoutError):
                    await asyncio.sleep(_PAUSE)

    async def _has_new_primary(self, sentinel: Host, primary: Host) -> bool:
        """Listen for some seconds; return whether the sentinel names another primary by then."""
        connection = new_connection(self._endpoint.of_sentinels, sentinel, name="")
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                await connection.connect()
                await _send(connection, "SUBSCRIBE", _SWITCHED)
                await connection.read_response()
                # Catches a change published before the subscription.
                if await self._ask(sentinel) not in (None, primary):
                    return True
            try:
                async with asyncio.timeout(_LISTENS):
                    while True:
                        said = cast("list[bytes]", await connection.read_response())
                        if said[-1].split()[:1] == [self._endpoint.service.encode()]:
                            return True
            except TimeoutError:
                return False
        finally:
            await abandon(connection)

    def _sentinels(self) -> list[Host]:
        hosts = self._endpoint.hosts
        first = self._first % len(hosts)
        return [*hosts[first:], *hosts[:first]]


async def _send(connection: Connection, *words: str) -> None:
    await connection.send_packed_command([pack(words)], check_health=False)
