"""A connection to the broker that reopens itself whenever it is lost.

    idle -> connecting -> open -> (lost) -> waiting -> connecting ...        any -> closed

It needs no task: pika's callbacks and two timers drive it. Each opened connection is a new generation; a caller that
needs one again calls `opened` or `channel` again. All nodes are tried one after the other before a pause, so a dead
node costs only its own attempt.
"""

import asyncio
import enum
import functools
import math
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from taskmq.contracts.loggers import contained_logger
from taskmq.contracts.server_url import Host
from taskmq.errors import AccessDenied, BrokerUnavailable
from taskmq_rabbitmq.amqp.channels import OpenChannel
from taskmq_rabbitmq.amqp.fast_connection import AmqpConnection
from taskmq_rabbitmq.amqp.pika_types import (
    AMQPError,
    AuthenticationError,
    PikaConnection,
    silence_pika,
)
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.connect.connect_errors import UNANSWERED, describe, explain, find_tls_problem
from taskmq_rabbitmq.connect.credentials import Answer, CertificateCredentials, CredentialSource, PasswordCredentials
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS, cluster_name, connection_parameters, server_version
from taskmq_rabbitmq.connect.silence import SilenceDetector
from taskmq_rabbitmq.model.access_refused import denies_connection
from taskmq_rabbitmq.model.url import Endpoint, tls_context

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import MethodFrame

_T = TypeVar("_T")
_log = contained_logger(__name__)
_GOOD_SECONDS: Final = 3.0
# Pause before the next node of the same round.
_NEXT_NODE: Final = 0.1

Role = Literal["publish", "consume"]


class ConnectionState(enum.Enum):
    """Lifecycle state of a connection."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    CLOSED = "closed"


class Connection:
    """A connection with one role.

    Attributes:
        app: the owner of the queues declared over it; "": unknown.
        generation: number of times that it was opened.
        blocked: why the broker accepts no messages from it; None while it does.
        last_error: the error that ended the last attempt or connection.
        server_version: version of the last connected node.
        cluster_name: name of that node's cluster; None if it is unknown.
        on_unblocked: called when the broker accepts messages again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        login: CredentialSource,
        *,
        name: str,
        role: Role,
        loop: asyncio.AbstractEventLoop,
        app: str = "",
    ) -> None:
        self.app: Final = app
        self.generation = 0
        self.blocked: str | None = None
        self.last_error: str | None = None
        self.server_version: tuple[int, ...] | None = None
        self.cluster_name: str | None = None
        self.on_unblocked: Callable[[], None] = lambda: None
        self._state = ConnectionState.IDLE
        self._endpoint = endpoint
        self._login = login
        self._credentials: PasswordCredentials | CertificateCredentials | None = None
        self._role: Role = role
        self._name = name
        self._loop = loop
        self._context = tls_context(endpoint.tls) if endpoint.tls is not None else None
        self._hosts = random.sample(endpoint.hosts, len(endpoint.hosts))
        self._backoff = reconnect_backoff()
        self._attempts = 0
        self._opened_at = 0.0
        self._lost_at: float | None = None
        self._is_denied = False
        self._denial: AccessDenied | None = None
        self._distrusts = 0
        self._silence: SilenceDetector | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._amqp: AmqpConnection | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._ended: asyncio.Future[None] | None = None
        login.on_renewed(self._renew)

    def __repr__(self) -> str:
        blocked = " blocked" if self.blocked is not None else ""
        return (
            f"<Connection {self._role} {self._endpoint.address} {self._state.value}{blocked} "
            f"generation={self.generation}>"
        )

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state is ConnectionState.OPEN

    @property
    def refused(self) -> str | None:
        """Broker's text for the refusal of the last attempt; None if it was not refused."""
        return None if self._denial is None else str(self._denial)

    @property
    def trouble(self) -> str:
        """Reason why there is no connection, as text for an error."""
        return f"last error: {self.last_error or f'none, still connecting: {UNANSWERED}'}"

    @property
    def address(self) -> str:
        """Address of the node, without the password."""
        return self._endpoint.address

    async def wait_open(self, timeout: float | None) -> AmqpConnection:
        """Return the connection once it is open; open it if it is not.

        Raises:
            AccessDenied: the broker refused the user meanwhile.
            BrokerUnavailable: not within `timeout` seconds, or closed for good.
        """
        if self._state is ConnectionState.IDLE:
            self._connect()
        try:
            async with asyncio.timeout(timeout):
                while self._state is not ConnectionState.CLOSED:
                    if self._state is ConnectionState.OPEN and self._amqp is not None and self._amqp.is_open:
                        return self._amqp
                    await self._next_attempt()
        except TimeoutError:
            if self._denial is not None:
                raise AccessDenied(str(self._denial)) from None
            within = f"within {max(timeout or 0, 0):.1f} s"
            error = BrokerUnavailable(f"no connection to {self._endpoint.address} {within}; {self.trouble}")
            error.is_unanswered = self.last_error is None
            raise error from None
        raise BrokerUnavailable(f"the connection to {self._endpoint.address} was closed by this process")

    async def channel(self, timeout: float | None = OPEN_SECONDS) -> OpenChannel:
        """Return a new open channel.

        Raises:
            BrokerUnavailable: as for `opened`, or the broker has no channel left.
        """
        give_up = self._loop.time() + timeout if timeout is not None else math.inf
        while True:
            amqp = await self.wait_open(None if timeout is None else give_up - self._loop.time())
            try:
                return await self._open_channel(amqp)
            except BrokerUnavailable:
                # The connection was lost already, only not detected yet.
                if amqp.is_open or self._loop.time() >= give_up:
                    raise

    async def ask(self, question: Callable[[OpenChannel], Awaitable[_T]]) -> _T:
        """Return the result of `question` on a channel of its own, whose failure affects nothing else.

        It is repeated when the connection is lost meanwhile, so it must be idempotent.

        Raises:
            BrokerUnavailable: as for `opened`, or no answer arrived.
            ChannelRefused: the broker refused.
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
        """Close it for good, cleanly if the broker answers within `timeout` seconds. May be called twice."""
        if self._state is ConnectionState.CLOSED:
            return
        self._state = ConnectionState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        self._wake(BrokerUnavailable(f"the connection to {self._endpoint.address} was closed by this process"))
        amqp = self._amqp
        if amqp is None:
            return
        self._ended = self._loop.create_future()
        if not (amqp.is_closing or amqp.is_closed):
            amqp.close()
        if not await self._wait_until_closed(timeout):
            amqp.abort("it did not close in time")
            await self._wait_until_closed(1.0)

    def _connect(self) -> None:
        silence_pika()
        self._timer = None
        host = self._hosts[0]
        # The next attempt, after a failure or a loss, uses the next node.
        self._hosts.append(self._hosts.pop(0))
        self._state = ConnectionState.CONNECTING
        self._login.current(functools.partial(self._dial, host))

    def _dial(self, host: Host, credentials: Answer) -> None:
        if self._state is not ConnectionState.CONNECTING:
            return
        if isinstance(credentials, BrokerUnavailable):
            self._reconnect_later(str(credentials))
            if isinstance(credentials, AccessDenied):
                self._deny(credentials)
            return
        self._credentials = credentials
        self._amqp = AmqpConnection(
            connection_parameters(
                self._endpoint, host, credentials, context=self._context, name=self._name, role=self._role
            ),
            loop=self._loop,
            wire=self._endpoint.wire,
            on_open=self._on_open,
            on_open_error=self._on_open_error,
            on_close=self._on_close,
        )
        self._amqp.add_on_connection_blocked_callback(self._on_blocked)
        self._amqp.add_on_connection_unblocked_callback(self._on_unblocked)

    def _on_open(self, amqp: PikaConnection) -> None:
        if self._state is ConnectionState.CLOSED:
            amqp.close()
            return
        self.generation += 1
        self.blocked = None
        self.server_version = server_version(amqp)
        self.cluster_name = cluster_name(amqp)
        self._opened_at = self._loop.time()
        self._is_denied = False
        self._denial = None
        self._distrusts = 0
        if self._lost_at is not None:
            _log.info("%s: connected again after %.1f s", self, self._opened_at - self._lost_at)
        self._silence = SilenceDetector(
            self._endpoint.heartbeat, lambda: amqp.bytes_received, self._on_silence, loop=self._loop
        )
        self._state = ConnectionState.OPEN
        if self._credentials is not None and (newer := self._login.newer(self._credentials.secret)) is not None:
            self._renew(newer)
        self._wake(None)

    def _on_open_error(self, _amqp: PikaConnection, error: BaseException) -> None:
        reason = describe(error)
        credentials = self._credentials
        denied = isinstance(error, AuthenticationError) or denies_connection(reason)
        self._distrusts = self._distrusts + 1 if find_tls_problem(reason) is not None else 0
        self._reconnect_later((credentials.problem if credentials is not None else None) or explain(reason))
        if self._state is ConnectionState.CLOSED or credentials is None:
            return
        if denied:
            self._login.on_refusal(credentials.secret)
            remedy = "" if credentials.problem is not None else f"; {credentials.remedy}"
            self._deny(AccessDenied(f"{self._endpoint.address} refused this client: {self.last_error}{remedy}"))
        elif self._distrusts >= len(self._hosts):
            self._wake(BrokerUnavailable(f"no connection to {self._endpoint.address}: {self.last_error}"))

    def _deny(self, error: AccessDenied) -> None:
        if not self._is_denied:
            self._is_denied = True
            _log.warning("%s: connection refused, will retry: %s", self, error)
        self._denial = error
        self._wake(error)

    def _renew(self, secret: str) -> None:
        if self._state is ConnectionState.OPEN and self._amqp is not None and self._amqp.is_open:
            self._amqp.update_secret(secret, "a newer token")

    def _on_close(self, _amqp: PikaConnection, error: BaseException) -> None:
        # A connection that lasted for a while restarts the back-off; one that the broker drops immediately does not,
        # or it would reconnect without a pause.
        if self._loop.time() - self._opened_at > _GOOD_SECONDS:
            self._backoff.reset()
            self._attempts = 0
        self._lost_at = self._loop.time()
        self._reconnect_later(describe(error))

    def _on_silence(self) -> None:
        if self._amqp is not None:
            self._amqp.abort(f"no sign of life from the broker for {1.5 * self._endpoint.heartbeat:g} s")

    def _reconnect_later(self, reason: str) -> None:
        was_open = self._state is ConnectionState.OPEN
        self._amqp = None
        self.blocked = None
        self.last_error = reason
        self._denial = None
        if self._silence is not None:
            self._silence.stop()
            self._silence = None
        if self._state is ConnectionState.CLOSED:
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
            return
        pause = self._pause()
        self._state = ConnectionState.WAITING
        if was_open:
            _log.warning("%s: connection lost, will retry: %s", self, self.last_error)
        else:
            _log.debug("%s: %s; next attempt in %.2f s", self, self.last_error, pause)
        self._timer = self._loop.call_later(pause, self._connect)

    def _pause(self) -> float:
        self._attempts += 1
        if self._attempts % len(self._hosts):
            return random.uniform(0, _NEXT_NODE)
        return self._backoff.next()

    def _on_blocked(self, _amqp: PikaConnection, frame: "MethodFrame") -> None:
        self.blocked = frame.method.reason
        _log.warning("%s: the broker blocks publishing: %s", self, self.blocked)

    def _on_unblocked(self, _amqp: PikaConnection, _frame: "MethodFrame") -> None:
        self.blocked = None
        _log.info("%s: the broker accepts messages again", self)
        self.on_unblocked()

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

    async def _wait_until_closed(self, timeout: float) -> bool:
        assert self._ended is not None
        return bool((await asyncio.wait({self._ended}, timeout=timeout))[0])
