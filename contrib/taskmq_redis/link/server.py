"""Calls to the server, or to the Redis Cluster node that has the key, and the handling of errors."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final, cast

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from taskmq.contracts.server_url import Host
from taskmq.errors import StateUnavailable
from taskmq_redis.link.call import Call, Reply, Word, pack
from taskmq_redis.link.connect import Connection, Target, new_connection, targets_of
from taskmq_redis.link.pipeline import Pipeline
from taskmq_redis.link.sentinel import PrimaryConnection
from taskmq_redis.scripts.script import Script
from taskmq_redis.url import Endpoint

_MOST_REFERRALS: Final = 8
_PAUSE: Final = 0.1


class Server:
    """The server or cluster that has the keys. Connects on first use.

    Args:
        name: the name that `CLIENT LIST` shows.
    """

    def __init__(self, endpoint: Endpoint, *, name: str) -> None:
        self.address = endpoint.address
        self.timeout = endpoint.timeout
        self._endpoint = endpoint
        self._name = name
        # Nodes learned from replies replace the URL's hosts when those are gone.
        self._targets: list[Target] = targets_of(endpoint)
        self._turns = itertools.count()
        self._home = Pipeline(self.address, self.new_connection, timeout=self.timeout)
        self._nodes: dict[Host, Pipeline] = {}
        self._slots: dict[int, Host] = {}
        self._is_closed = False

    def new_connection(self) -> Connection:
        """Return a connection, not open yet, to the next known target."""
        if self._endpoint.service:
            return PrimaryConnection(self._endpoint, first=next(self._turns), name=self._name)
        target = self._targets[next(self._turns) % len(self._targets)]
        return new_connection(self._endpoint, target, name=self._name)

    async def run(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[Word],
        *,
        can_repeat: bool = True,
        timeout: float | None = None,
    ) -> Reply:
        """Run the script and return its result.

        Raises:
            StateUnavailable: it did not finish within `timeout` seconds, by default the URL's.
        """
        words = ("EVALSHA", script.digest, len(keys), *keys, *arguments)
        return await self._settle(_RoutedCall(keys[0], words, can_repeat=can_repeat, script=script), timeout)

    async def ask(self, *words: Word, key: str, timeout: float | None = None) -> Reply:
        """Send a command that changes nothing and return the answer.

        Raises:
            StateUnavailable: there was no answer within `timeout` seconds, by default the URL's.
        """
        return await self._settle(_RoutedCall(key, words, can_repeat=True), timeout)

    async def aclose(self) -> None:
        """Wait for the calls under way, and close. May be called twice."""
        self._is_closed = True
        await asyncio.gather(*(link.aclose() for link in (self._home, *self._nodes.values())))

    def check_open(self) -> None:
        """Raise if the state was closed."""
        if self._is_closed:
            raise StateUnavailable(f"the state {self.address} was closed")

    async def _settle(self, routed: "_RoutedCall", timeout: float | None) -> Reply:
        self.check_open()
        patience = self.timeout if timeout is None else timeout
        # Cheaper than asyncio's timeouts; there is one per call.
        timer = asyncio.get_running_loop().call_later(patience, routed.give_up)
        try:
            return await self._route(routed)
        except TimeoutError:
            raise StateUnavailable(
                f"the state {self.address} did not answer within {patience:g} s",
                is_certain=not (routed.was_lost or routed.call.was_sent),
            ) from None
        finally:
            timer.cancel()

    async def _route(self, routed: "_RoutedCall") -> Reply:
        last: Exception | None = None
        for _ in range(_MOST_REFERRALS):
            if routed.is_given_up:
                raise TimeoutError
            call = routed.call
            node = routed.asked or (self._slots.get(routed.slot) if self._slots else None)
            link = self._home if node is None else self._link(node)
            link.submit(call)
            try:
                reply = await call.future
            except StateUnavailable as error:
                may_go_on = error.is_certain or call.can_repeat
                routed.was_lost |= not error.is_certain
                if node is None or not may_go_on or not self._forget(node):
                    # Certainty must cover all steps; this error only knows the last one.
                    error.is_certain = not routed.was_lost
                    raise
                routed.go_on()
                last = error
                continue
            if not isinstance(reply, ResponseError):
                return reply
            last = reply
            await self._refer(reply, routed, link)
        raise StateUnavailable(
            f"the state {self.address} referred from node to node without an answer: is a node of the cluster down? "
            f"The last error: {last}"
        )

    async def _refer(self, error: ResponseError, routed: "_RoutedCall", link: Pipeline) -> None:
        """Prepare the next step after an error that names or allows one."""
        match error:
            case NoScriptError():
                routed.go_on(in_full=True)
            case MovedError():
                routed.go_on()
                self._slots[routed.slot] = self._target_of(error)
            case AskError():
                routed.go_on()
                routed.asked = self._target_of(error)
                routed.call.is_asking = True
            case TryAgainError() | ClusterDownError():
                await asyncio.sleep(_PAUSE)
                routed.go_on()
            case ReadOnlyError():
                # It became a replica: its successor is another of the hosts, or has the same name.
                await link.drop()
                raise StateUnavailable(f"the state {self.address} cannot be written: {error}") from error
            case _:
                raise StateUnavailable(f"the state {self.address} refused: {error}") from error

    def _target_of(self, error: AskError) -> Host:
        # A node that does not know its own name omits it, meaning the node that was asked.
        name, port = cast("str", error.host), error.port
        host = Host(name, port) if name else self._home_host(port)
        if host not in self._targets:
            self._targets.append(host)
        return host

    def _home_host(self, port: int) -> Host:
        first = self._endpoint.hosts[0] if self._endpoint.hosts else Host("localhost", port)
        return Host(first.name, port)

    def _link(self, node: Host) -> Pipeline:
        if node not in self._nodes:

            def connect() -> Connection:
                return new_connection(self._endpoint, node, name=self._name)

            self._nodes[node] = Pipeline(f"{self.address} ({node})", connect, timeout=self.timeout)
        return self._nodes[node]

    def _forget(self, node: Host) -> bool:
        """Forget a lost node and the slots it had; return False if no call was sent there."""
        slots = [slot for slot, owner in self._slots.items() if owner == node]
        for slot in slots:
            del self._slots[slot]
        return bool(slots)


class _RoutedCall:
    """A call that may have to go to several nodes.

    Args:
        key: decides which node gets the call.
        script: the script whose hash the words contain.

    Attributes:
        asked: node for the next step only.
        was_lost: whether the outcome of a step is unknown.
        is_given_up: whether the time is up.
    """

    __slots__ = ("_key", "_script", "_words", "asked", "call", "is_given_up", "was_lost")

    def __init__(self, key: str, words: tuple[Word, ...], *, can_repeat: bool, script: Script | None = None) -> None:
        self._key = key
        self._words = words
        self._script = script
        self.call = Call(pack(words), can_repeat)
        self.asked: Host | None = None
        self.was_lost = False
        self.is_given_up = False

    @property
    def slot(self) -> int:
        return key_slot(self._key.encode())

    def go_on(self, *, in_full: bool = False) -> None:
        """Prepare the next step as a new call; `in_full` sends the script's source to a server that lacks it."""
        command = self.call.command
        if in_full and self._script is not None:
            command = pack(("EVAL", self._script.source, *self._words[2:]))
        self.call = Call(command, self.call.can_repeat)
        self.asked = None

    def give_up(self) -> None:
        """End the call because its time is up."""
        self.is_given_up = True
        self.call.fail(TimeoutError())
