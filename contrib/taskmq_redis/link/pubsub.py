"""The connection for channels: listeners, which miss nothing published while the connection was down."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, cast

from redis.exceptions import RedisError

from taskmq.model.backoff import Backoff
from taskmq_redis.link.call import pack
from taskmq_redis.link.connect import Connection, abandon, close

Heard = Callable[[bytes], None]

_CHUNK: Final = 500
_PING: Final = 5.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0


class PubSub:
    """Calls listeners with the messages of their channels, and with b"" when they should read the state themselves.

    That is whenever the server confirms a subscription: after the first `listen` of a channel and after every loss of
    the connection. Earlier messages were not received.

    One task runs from the first `listen` on. It compares the channels that have listeners with those subscribed on
    its connection and sends the difference, so thousands of short-lived listeners share a few commands.

    Args:
        connect: returns a new connection, not open yet.
        timeout: seconds for opening it, and for the answer to a ping.
    """

    def __init__(self, connect: Callable[[], Connection], *, timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._listeners: dict[bytes, list[Heard]] = {}
        self._subscribed: set[bytes] = set()
        self._confirmed: set[bytes] = set()
        self._changed: set[bytes] = set()
        self._has_changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False

    def listen(self, channel: str, heard: Heard) -> Callable[[], None]:
        """Call `heard` on this loop from now on; return the function that ends it, which may be called twice."""
        name = channel.encode()
        self._listeners.setdefault(name, []).append(heard)
        if name in self._confirmed:
            asyncio.get_running_loop().call_soon(heard, b"")
        self._note(name)
        if self._running is None and not self._is_closed:
            self._running = asyncio.get_running_loop().create_task(self._run())

        def stop() -> None:
            listeners = self._listeners.get(name, [])
            if heard in listeners:
                listeners.remove(heard)
            if not listeners:
                self._listeners.pop(name, None)
                self._note(name)

        return stop

    async def aclose(self) -> None:
        """Stop listening. May be called twice."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _note(self, name: bytes) -> None:
        self._changed.add(name)
        self._has_changed.set()

    async def _run(self) -> None:
        # Full jitter: all processes lost the server at the same moment.
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, draw=lambda pause: random.uniform(0, pause))
        while True:
            # Without listeners there is no need to reconnect.
            while not self._listeners:
                self._has_changed.clear()
                await self._has_changed.wait()
            connection = self._connect()
            try:
                async with asyncio.timeout(self._timeout):
                    await connection.connect()
                backoff.reset()
                await self._serve(connection)
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(backoff.next())
            finally:
                self._subscribed.clear()
                self._confirmed.clear()
                await (close(connection) if self._is_closed else abandon(connection))

    async def _serve(self, connection: Connection) -> None:
        """Subscribe and pass on messages until the connection is lost."""
        self._changed.update(self._listeners)
        self._has_changed.set()
        reading = asyncio.create_task(self._read(connection))
        writing = asyncio.create_task(self._write(connection))
        both = (reading, writing)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._is_closed:
                # Before its reader stops, which would leave a reply half read.
                await close(connection)
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        for task in both:
            if not task.cancelled():
                task.result()

    async def _write(self, connection: Connection) -> None:
        while True:
            try:
                async with asyncio.timeout(_PING):
                    await self._has_changed.wait()
            except TimeoutError:
                await _send(connection, "PING", ())
                continue
            self._has_changed.clear()
            changed, self._changed = self._changed, set()
            wanted = [name for name in changed if name in self._listeners and name not in self._subscribed]
            unwanted = [name for name in changed if name not in self._listeners and name in self._subscribed]
            self._subscribed.update(wanted)
            self._subscribed.difference_update(unwanted)
            self._confirmed.difference_update(unwanted)
            for verb, names in (("SUBSCRIBE", wanted), ("UNSUBSCRIBE", unwanted)):
                for chunk in _chunks(names):
                    await _send(connection, verb, chunk)

    async def _read(self, connection: Connection) -> None:
        while True:
            # Silence means a lost connection: there must at least be an answer to a ping.
            async with asyncio.timeout(_PING + self._timeout):
                said = cast("list[bytes]", await connection.read_response())
            match said:
                case [b"message", channel, payload]:
                    self._notify(channel, payload)
                case [b"subscribe", channel, *_]:
                    if channel in self._subscribed:
                        self._confirmed.add(channel)
                    self._notify(channel, b"")
                case _:
                    pass

    def _notify(self, channel: bytes, payload: bytes) -> None:
        for heard in tuple(self._listeners.get(channel, ())):
            heard(payload)


async def _send(connection: Connection, verb: str, names: Iterable[bytes]) -> None:
    await connection.send_packed_command([pack((verb, *names))], check_health=False)


def _chunks(names: list[bytes]) -> Iterator[list[bytes]]:
    rest = iter(names)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
