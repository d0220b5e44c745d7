"""One connection to the broker that is opened again whenever it is lost.

    idle -> connecting -> open -> (lost) -> waiting -> connecting ...        any -> closed

No task is behind it: pika's callbacks and one timer drive it. Each connection that opens is a new generation;
whoever needs one again asks `opened` or `channel` again.
"""

import asyncio
import enum
import logging
import math
import os
import platform
import random
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.amqp import (
    AMQPError,
    AuthenticationError,
    ConnectionParameters,
    PikaConnection,
    PlainCredentials,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    SSLOptions,
    hush_pika,
)
from taskmq_rabbitmq.backoff import Backoff
from taskmq_rabbitmq.channels import OpenChannel
from taskmq_rabbitmq.lane import AmqpConnection
from taskmq_rabbitmq.url import Endpoint, Host

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp import MethodFrame

__all__ = ["OPEN_SECONDS", "Connection", "Role", "State"]

OPEN_SECONDS: Final = 10.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_TCP_SECONDS: Final = 5.0
_REFUSED: Final = (ProbableAuthenticationError, ProbableAccessDeniedError, AuthenticationError)

Role = Literal["publish", "consume"]


class State(enum.Enum):
    """Where a connection is in its life."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    CLOSED = "closed"


class Connection:
    """A connection with one role.

    Attributes:
        generation: how many times it has been opened.
        blocked: why the broker takes no messages from it; None while it does.
        last_error: what ended the last attempt or the last connection.
        server_version: of the node that it was last connected to.
        on_unblocked: called when the broker takes messages again.
    """

    def __init__(self, endpoint: Endpoint, *, name: str, role: Role, loop: asyncio.AbstractEventLoop) -> None:
        self.generation = 0
        self.blocked: str | None = None
        self.last_error: str | None = None
        self.server_version: tuple[int, ...] | None = None
        self.on_unblocked: Callable[[], None] = lambda: None
        self._state = State.IDLE
        self._endpoint = endpoint
        self._role: Role = role
        self._name = name
        self._loop = loop
        self._context = endpoint.tls.context() if endpoint.tls is not None else None
        self._hosts = random.sample(endpoint.hosts, len(endpoint.hosts))
        self._backoff = Backoff()
        self._opened_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._amqp: AmqpConnection | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._ended: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        blocked = " blocked" if self.blocked is not None else ""
        return (
            f"<Connection {self._role} {self._endpoint.address} {self._state.value}{blocked} "
            f"generation={self.generation}>"
        )

    @property
    def state(self) -> State:
        return self._state

    async def opened(self, timeout: float | None) -> AmqpConnection:
        """The connection itself, once it is open; opens it when nobody has.

        Raises:
            BrokerUnavailable: not within `timeout` seconds, refused meanwhile, or closed for good.
        """
        if self._state is State.IDLE:
            self._connect()
        try:
            async with asyncio.timeout(timeout):
                while self._state is not State.CLOSED:
                    if self._state is State.OPEN and self._amqp is not None and self._amqp.is_open:
                        return self._amqp
                    await self._next_attempt()
        except TimeoutError:
            raise BrokerUnavailable(
                f"no connection to {self._endpoint.address} within {max(timeout or 0, 0):.1f} s; "
                f"last error: {self.last_error or 'none, still connecting'}"
            ) from None
        raise BrokerUnavailable(f"the connection to {self._endpoint.address} was closed on this side")

    async def channel(self, timeout: float | None = OPEN_SECONDS) -> OpenChannel:
        """A new open channel.

        Raises:
            BrokerUnavailable: as `opened`, or the broker has no channel left.
        """
        give_up = self._loop.time() + timeout if timeout is not None else math.inf
        while True:
            amqp = await self.opened(None if timeout is None else give_up - self._loop.time())
            try:
                return await self._open_channel(amqp)
            except BrokerUnavailable:
                # The connection was lost already, only not known to be.
                if amqp.is_open or self._loop.time() >= give_up:
                    raise

    async def ask(self, question: Callable[[OpenChannel], Awaitable[_T]]) -> _T:
        """What `question` brings from a channel of its own, whose end costs nothing else.

        Asked again when the connection is lost meanwhile, so it has to bear repeating.

        Raises:
            BrokerUnavailable: as `opened`, or no answer came.
            ChannelRefused: the broker's answer is no.
        """
        give_up = self._loop.time() + OPEN_SECONDS
        while True:
            channel = await self.channel(give_up - self._loop.time())
            try:
                return await question(channel)
            except BrokerUnavailable:
                if not channel.ended.done() or self._loop.time() >= give_up:
                    raise
            finally:
                channel.close()

    async def _open_channel(self, amqp: AmqpConnection) -> OpenChannel:
        answer: asyncio.Future[None] = self._loop.create_future()

        def on_open() -> None:
            if not answer.done():
                answer.set_result(None)

        try:
            channel = OpenChannel(amqp.open_channel(on_open), self._loop)
        except AMQPError as error:
            raise BrokerUnavailable(f"no channel at {self._endpoint.address}: {error!r}") from error
        try:
            await channel.outcome(answer, timeout=OPEN_SECONDS)
        except BaseException:
            channel.close()
            raise
        return channel

    async def close(self, timeout: float) -> None:
        """Close it for good, in order if the broker answers within `timeout` seconds. May be called twice."""
        if self._state is State.CLOSED:
            return
        self._enter(State.CLOSED)
        if self._timer is not None:
            self._timer.cancel()
        self._wake(BrokerUnavailable(f"the connection to {self._endpoint.address} was closed on this side"))
        amqp = self._amqp
        if amqp is None:
            return
        self._ended = self._loop.create_future()
        if not (amqp.is_closing or amqp.is_closed):
            amqp.close()
        if not await self._gone(timeout):
            amqp.abort()
            await self._gone(1.0)

    # The states' edges --------------------------------------------------------------------------------------

    def _connect(self) -> None:
        hush_pika()
        self._timer = None
        host = self._hosts[0]
        # The next attempt, after a failure or a loss, is for the next node.
        self._hosts.append(self._hosts.pop(0))
        self._enter(State.CONNECTING)
        self._amqp = AmqpConnection(
            self._parameters(host),
            loop=self._loop,
            wire=self._endpoint.wire,
            on_open=self._on_open,
            on_open_error=self._on_open_error,
            on_close=self._on_close,
        )
        self._amqp.add_on_connection_blocked_callback(self._on_blocked)
        self._amqp.add_on_connection_unblocked_callback(self._on_unblocked)

    def _on_open(self, amqp: PikaConnection) -> None:
        if self._state is State.CLOSED:
            amqp.close()
            return
        self.generation += 1
        self.blocked = None
        self.server_version = _version(amqp)
        self._opened_at = self._loop.time()
        self._enter(State.OPEN)
        self._wake(None)

    def _on_open_error(self, _amqp: PikaConnection, error: BaseException) -> None:
        refused = isinstance(error, _REFUSED)
        self._lost(error)
        if refused and self._state is not State.CLOSED:
            self._wake(BrokerUnavailable(f"{self._endpoint.address} refused this client: {self.last_error}"))

    def _on_close(self, _amqp: PikaConnection, error: BaseException) -> None:
        # A connection that was good for a while starts the back-off again; one that the broker drops as soon
        # as it is open does not, or it would come back without a pause.
        if self._loop.time() - self._opened_at > 10:
            self._backoff.reset()
        self._lost(error)

    def _lost(self, error: BaseException) -> None:
        self._amqp = None
        self.blocked = None
        self.last_error = _describe(error)
        if self._state is State.CLOSED:
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
            return
        delay = self._backoff.next()
        _log.debug("%s: %r; next attempt in %.2f s", self, self.last_error, delay)
        self._enter(State.WAITING)
        self._timer = self._loop.call_later(delay, self._connect)

    def _on_blocked(self, _amqp: PikaConnection, frame: "MethodFrame") -> None:
        self.blocked = frame.method.reason

    def _on_unblocked(self, _amqp: PikaConnection, _frame: "MethodFrame") -> None:
        self.blocked = None
        self.on_unblocked()

    def _enter(self, state: State) -> None:
        self._state = state

    # Waiting ------------------------------------------------------------------------------------------------

    async def _next_attempt(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self, error: BrokerUnavailable | None) -> None:
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def _gone(self, timeout: float) -> bool:
        assert self._ended is not None
        return bool((await asyncio.wait({self._ended}, timeout=timeout))[0])

    # What pika is told --------------------------------------------------------------------------------------

    def _parameters(self, host: Host) -> ConnectionParameters:
        endpoint = self._endpoint
        return ConnectionParameters(
            host=host.name,
            port=host.port,
            virtual_host=endpoint.vhost,
            credentials=PlainCredentials(endpoint.user, endpoint.password),
            heartbeat=endpoint.heartbeat,
            ssl_options=SSLOptions(self._context, host.name) if self._context is not None else None,
            client_properties={
                "connection_name": f"{self._name} {self._role}",
                "product": "taskmq",
                "version": _taskmq_version(),
                "platform": f"Python {platform.python_version()}, pid {os.getpid()}",
                "information": "",
            },
            connection_attempts=1,
            socket_timeout=_TCP_SECONDS,
            stack_timeout=OPEN_SECONDS,
        )


def _version(amqp: PikaConnection) -> tuple[int, ...] | None:
    text = (amqp.server_properties or {}).get("version")
    numbers = re.match(r"\d+(?:\.\d+)*", text) if isinstance(text, str) else None
    return tuple(map(int, numbers[0].split("."))) if numbers is not None else None


def _taskmq_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("taskmq")
    except PackageNotFoundError:
        return "unknown"


def _describe(error: BaseException) -> str:
    # pika nests the cause in lists and arguments of its own exceptions.
    seen = 0
    while seen < 8:
        causes = getattr(error, "exceptions", None) or (getattr(error, "exception", None), *error.args)
        nested = [cause for cause in causes if isinstance(cause, BaseException)]
        if not nested:
            break
        error = nested[-1]
        seen += 1
    return f"{type(error).__name__}: {error}"
