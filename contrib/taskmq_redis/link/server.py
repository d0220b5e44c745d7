"""Calls to the server, or to the node of a Redis Cluster that has the key, and what errors mean."""

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
from taskmq_redis.link.call import Call, Reply, Word, packed
from taskmq_redis.link.connect import Connection, Target, new_connection, targets_of
from taskmq_redis.link.pipeline import Pipeline
from taskmq_redis.link.sentinel import PrimaryConnection
from taskmq_redis.scripts.script import Script
from taskmq_redis.url import Endpoint

__all__ = ["Server"]

_MOST_REFERRALS: Final = 8
_PAUSE: Final = 0.1


class Server:
    """Where the keys are. Connects on first use.

    Args:
        name: what `CLIENT LIST` shows.
    """

    def __init__(self, endpoint: Endpoint, *, name: str) -> None:
        self.address = endpoint.address
        self.timeout = endpoint.timeout
        self._endpoint = endpoint
        self._name = name
        # Nodes that were referred to stand in for those of the URL when these are gone.
        self._targets: list[Target] = targets_of(endpoint)
        self._turns = itertools.count()
        self._home = Pipeline(self.address, self.new_connection, timeout=self.timeout)
        self._nodes: dict[Host, Pipeline] = {}
        self._slots: dict[int, Host] = {}
        self._is_closed = False

    def new_connection(self) -> Connection:
        """A connection, not open yet, to the next of the known places."""
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
        """What the script returns.

        Raises:
            StateUnavailable: it could not be run within `timeout` seconds, by default the URL's.
        """
        words = ("EVALSHA", script.digest, len(keys), *keys, *arguments)
        return await self._settle(_Journey(keys[0], words, can_repeat=can_repeat, script=script), timeout)

    async def ask(self, *words: Word, key: str, timeout: float | None = None) -> Reply:
        """What the server answers to a command that changes nothing.

        Raises:
            StateUnavailable: there was no answer within `timeout` seconds, by default the URL's.
        """
        return await self._settle(_Journey(key, words, can_repeat=True), timeout)

    async def aclose(self) -> None:
        """Wait for the calls that are under way, and close. May be called twice."""
        self._is_closed = True
        await asyncio.gather(*(link.aclose() for link in (self._home, *self._nodes.values())))

    def check_open(self) -> None:
        """Raise when the state was closed."""
        if self._is_closed:
            raise StateUnavailable(f"the state {self.address} was closed")

    async def _settle(self, journey: "_Journey", timeout: float | None) -> Reply:
        self.check_open()
        patience = self.timeout if timeout is None else timeout
        # Less than asyncio's own timeouts need, and there is one for each call.
        timer = asyncio.get_running_loop().call_later(patience, journey.give_up)
        try:
            return await self._travel(journey)
        except TimeoutError:
            raise StateUnavailable(
                f"the state {self.address} did not answer within {patience:g} s",
                is_certain=not (journey.was_lost or journey.call.was_sent),
            ) from None
        finally:
            timer.cancel()

    async def _travel(self, journey: "_Journey") -> Reply:
        last: Exception | None = None
        for _ in range(_MOST_REFERRALS):
            if journey.is_given_up:
                raise TimeoutError
            call = journey.call
            node = journey.asked or (self._slots.get(journey.slot) if self._slots else None)
            link = self._home if node is None else self._link(node)
            link.submit(call)
            try:
                reply = await call.future
            except StateUnavailable as error:
                may_go_on = error.is_certain or call.can_repeat
                journey.was_lost |= not error.is_certain
                if node is None or not may_go_on or not self._forget(node):
                    # Of the last step that may be certain.
                    error.is_certain = not journey.was_lost
                    raise
                journey.go_on()
                last = error
                continue
            if not isinstance(reply, ResponseError):
                return reply
            last = reply
            await self._refer(reply, journey, link)
        raise StateUnavailable(
            f"the state {self.address} referred from node to node, and none took the call: is a node of the cluster "
            f"down? The last one: {last}"
        )

    async def _refer(self, error: ResponseError, journey: "_Journey", link: Pipeline) -> None:
        """Prepare the next step after an error that names or allows one."""
        match error:
            case NoScriptError():
                journey.go_on(in_full=True)
            case MovedError():
                journey.go_on()
                self._slots[journey.slot] = self._known(error)
            case AskError():
                journey.go_on()
                journey.asked = self._known(error)
                journey.call.is_asking = True
            case TryAgainError() | ClusterDownError():
                await asyncio.sleep(_PAUSE)
                journey.go_on()
            case ReadOnlyError():
                # It has become a replica: its successor is another of the hosts, or found under the same name.
                await link.drop()
                raise StateUnavailable(f"the state {self.address} cannot be written: {error}") from error
            case _:
                raise StateUnavailable(f"the state {self.address} refused: {error}") from error

    def _known(self, error: AskError) -> Host:
        # A node that does not know its own name leaves it out: it means the one that was asked.
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
        """Ask anew where the slots of a node are that is gone; False when no call was sent there."""
        slots = [slot for slot, owner in self._slots.items() if owner == node]
        for slot in slots:
            del self._slots[slot]
        return bool(slots)


class _Journey:
    """A call that may have to go several ways.

    Args:
        key: says which node it belongs to.
        script: what the words name by its hash.

    Attributes:
        asked: the node that the next step is to go to, once.
        was_lost: what became of a step is not known.
        is_given_up: the time is up.
    """

    __slots__ = ("_key", "_script", "_words", "asked", "call", "is_given_up", "was_lost")

    def __init__(self, key: str, words: tuple[Word, ...], *, can_repeat: bool, script: Script | None = None) -> None:
        self._key = key
        self._words = words
        self._script = script
        self.call = Call(packed(words), can_repeat)
        self.asked: Host | None = None
        self.was_lost = False
        self.is_given_up = False

    @property
    def slot(self) -> int:
        return key_slot(self._key.encode())

    def go_on(self, *, in_full: bool = False) -> None:
        """Take the next step with a call of its own; `in_full` with the script itself, for who does not know it."""
        command = self.call.command
        if in_full and self._script is not None:
            command = packed(("EVAL", self._script.source, *self._words[2:]))
        self.call = Call(command, self.call.can_repeat)
        self.asked = None

    def give_up(self) -> None:
        """The time is up."""
        self.is_given_up = True
        self.call.fail(TimeoutError())
