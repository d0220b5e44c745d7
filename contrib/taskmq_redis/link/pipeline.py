"""A connection for commands: collected while a batch is under way, sent together, answered in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from taskmq.errors import StateUnavailable
from taskmq_redis.link.call import Call, Reply, pack
from taskmq_redis.link.connect import Connection, abandon, close, is_stale
from taskmq_redis.link.sentinel import NotSent

_MOST_CALLS: Final = 500
_MOST_BYTES: Final = 1024 * 1024
_MOST_REPEATS: Final = 2
_LOADING_PAUSE: Final = 0.1
# Seconds for which a connection is assumed to be unchanged.
_FRESH: Final = 0.02
_ASKING: Final = pack(("ASKING",))


class Pipeline:
    """The calls to one server, or to one of several in turn.

    A task runs as long as there are calls, and only it uses the connection. So a caller that is cancelled or times
    out leaves no reply half read.

    Args:
        address: for messages.
        connect: returns a new connection, not open yet, to the next of several targets each time.
        timeout: seconds for opening a connection, and for a batch.
    """

    def __init__(self, address: str, connect: Callable[[], Connection], *, timeout: float) -> None:
        self._address = address
        self._connect = connect
        self._timeout = timeout
        self._waiting: deque[Call] = deque()
        self._connection: Connection | None = None
        self._used = 0.0
        self._running: asyncio.Task[None] | None = None

    def submit(self, call: Call) -> None:
        """Send `call` with the next batch; its future ends with the reply or with `StateUnavailable`."""
        self._waiting.append(call)
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def drop(self) -> None:
        """Drop the connection; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await abandon(connection)

    async def aclose(self) -> None:
        """Wait for the calls under way, at most as long as a batch may take, and close."""
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=self._timeout)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    async def _run(self) -> None:
        try:
            await self._check()
            while self._waiting:
                await self._exchange()
        finally:
            self._running = None
            self._fail_waiting("was closed", len(self._waiting))

    async def _check(self) -> None:
        """Drop a connection that the server has closed since its last use."""
        if self._connection is None or asyncio.get_running_loop().time() - self._used < _FRESH:
            return
        # The loop may not have polled its sockets yet: it polls in the first turn and reacts in the second.
        for _ in range(2):
            await asyncio.sleep(0)
        if await is_stale(self._connection):
            await self.drop()

    async def _exchange(self) -> None:
        count = len(self._waiting)
        try:
            connection = await self._open()
        except BusyLoadingError:
            await asyncio.sleep(_LOADING_PAUSE)
            self._forget_given_up()
            return
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            # Calls submitted since then may find a server that is up again: they get an attempt of their own.
            self._fail_waiting(_reason(error, self._timeout), count)
            return
        batch = self._next_batch()
        if not batch:
            return
        unanswered = deque(batch)
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(connection, batch)
                while unanswered:
                    unanswered[0].answer(await _read(connection, is_asking=unanswered[0].is_asking))
                    unanswered.popleft()
                self._used = asyncio.get_running_loop().time()
        except (BusyLoadingError, NotSent) as error:
            # The server rejected them all.
            await self.drop()
            for call in unanswered:
                call.was_sent = False
            self._waiting.extendleft(reversed(unanswered))
            if isinstance(error, BusyLoadingError):
                await asyncio.sleep(_LOADING_PAUSE)
        except (RedisError, OSError, TimeoutError) as error:
            await self.drop()
            self._fail_or_repeat(unanswered, error)
        except BaseException:
            # Cancelled in the middle: the connection's next replies belong to no call.
            await self.drop()
            self._fail_or_repeat(unanswered, RedisError("it was closed"))
            raise

    async def _open(self) -> Connection:
        if self._connection is None:
            connection = self._connect()
            try:
                async with asyncio.timeout(self._timeout):
                    await connection.connect()
            except BaseException:
                await abandon(connection)
                raise
            self._connection = connection
        return self._connection

    async def _send(self, connection: Connection, batch: list[Call]) -> None:
        commands: list[bytes] = []
        for call in batch:
            call.was_sent = True
            if call.is_asking:
                commands.append(_ASKING)
            commands.append(call.command)
        await connection.send_packed_command(commands, check_health=False)

    def _next_batch(self) -> list[Call]:
        batch: list[Call] = []
        size = 0
        while self._waiting and len(batch) < _MOST_CALLS and size < _MOST_BYTES:
            call = self._waiting.popleft()
            # The caller is gone: calls that timed out must not take effect afterwards.
            if not call.future.done():
                batch.append(call)
                size += len(call.command)
        return batch

    def _fail_or_repeat(self, unanswered: deque[Call], error: Exception) -> None:
        again: list[Call] = []
        for call in unanswered:
            if call.can_repeat and call.repeats < _MOST_REPEATS and not isinstance(error, TimeoutError):
                call.repeats += 1
                again.append(call)
            else:
                call.fail(self._error(_reason(error, self._timeout), call))
        self._waiting.extendleft(reversed(again))

    def _forget_given_up(self) -> None:
        self._waiting = deque(call for call in self._waiting if not call.future.done())

    def _fail_waiting(self, reason: str, count: int) -> None:
        for _ in range(count):
            call = self._waiting.popleft()
            call.fail(self._error(reason, call))

    def _error(self, reason: str, call: Call) -> StateUnavailable:
        return StateUnavailable(f"the state {self._address} {reason}", is_certain=not call.was_sent)


async def _read(connection: Connection, *, is_asking: bool) -> Reply | ResponseError:
    if is_asking:
        await connection.read_response()
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {timeout:g} s"
    return f"could not be reached: {str(error) or type(error).__name__}"
