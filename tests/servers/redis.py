"""A private Redis server, and the few parts of its protocol that tests of the server itself need."""

import os
import shutil
import socket
from collections.abc import Sequence
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from taskmq.testing.containers import RedisContainer, engine_answers
from tests.servers.chroot import REDISES, chroot_of, enter
from tests.servers.errors import ServerFailed, ServerUnavailable
from tests.servers.ports import PortLease
from tests.servers.process import Command, Keeper, LocalProcess
from tests.servers.server import REMEDY, External, Server, Source, wants_containers

Answer = str | int | None | list["Answer"]


class Redis(Server):
    """A server; with `appendonly` (the default) acknowledged writes survive a kill and a restart.

    Args:
        options: more of `redis-server`; only for a server of this machine.

    Sources, in this order: $TASKMQ_TEST_REDIS_URL, the programs of this machine or, with $TASKMQ_TEST_REDIS (8.0 or
    valkey), those of a chroot (`python -m tests.servers provision redis-8.0`), a container.
    """

    def __init__(self, *, appendonly: bool = True, options: Sequence[str] = ()) -> None:
        super().__init__()
        self._options = ("--appendonly", "yes" if appendonly else "no", *options)
        self._is_special = bool(options)
        self._url = ""

    @property
    def url(self) -> str:
        self._running_source()
        return self._url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 6379

    def command(self, *words: str) -> Answer:
        """Return the server's answer to one command."""
        return ask(self.url, *words)

    def flush(self) -> None:
        """Delete every key of the database in the URL, and of no other."""
        self.command("FLUSHDB")

    def __repr__(self) -> str:
        return f"<Redis {self._url}>"

    def _open(self) -> Source:
        if not self._is_special and (url := os.environ.get("TASKMQ_TEST_REDIS_URL")):
            self._url = url
            return External("TASKMQ_TEST_REDIS_URL")
        if not wants_containers() and (program := redis_program()) is not None:
            lease = PortLease(1)
            (port,) = lease.ports
            self._url = f"redis://127.0.0.1:{port}/0"
            keeper = Keeper("redis")
            here = ("--bind", "127.0.0.1", "--port", str(port), "--dir", str(keeper.directory))
            return LocalProcess(keeper, Command((*program, *here, "--save", "", *self._options)), lease=lease)
        if not self._is_special and engine_answers():
            container = RedisContainer(ports=self._lease_ports(1), options=self._options)
            self._url = container.url
            return container
        raise ServerUnavailable(
            "Redis is not installed: run `python -m tests.servers install redis`, or `provision redis-8.0` for that, "
            f"(or `apt-get install redis-server`), or {REMEDY}, or set TASKMQ_TEST_REDIS_URL"
        )

    def _answers(self) -> bool:
        try:
            return self.command("PING") == "PONG"
        except (OSError, ServerFailed):
            return False


def redis_program() -> tuple[str, ...] | None:
    """Return the command of the server under test; None if it is not installed.

    Raises:
        ServerUnavailable: $TASKMQ_TEST_REDIS is invalid.
    """
    if (version := os.environ.get("TASKMQ_TEST_REDIS", "7.0")) == "7.0":
        return None if (binary := find_redis()) is None else (binary,)
    if version not in REDISES:
        raise ServerUnavailable(f"Redis {version} is not on offer; there are 7.0, {', '.join(REDISES)}")
    root = chroot_of(REDISES[version])
    kind, _, _ = REDISES[version].partition("-")
    return enter(root, f"/usr/bin/{kind}-server") if os.geteuid() == 0 and root.exists() else None


def find_redis() -> str | None:
    """Return the server's program on this machine."""
    return shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")


def ask(url: str, *words: str) -> Answer:
    """Return the answer of the server at this URL to one command, over a new connection."""
    parts = urlsplit(url)
    commands: list[tuple[str, ...]] = []
    if parts.password:
        login = (parts.username, parts.password) if parts.username else (parts.password,)
        commands.append(("AUTH", *map(unquote, login)))
    if database := parts.path.strip("/"):
        commands.append(("SELECT", database))
    commands.append(words)
    answer: Answer = None
    with (
        socket.create_connection((parts.hostname or "localhost", parts.port or 6379), timeout=2) as connection,
        connection.makefile("rb") as replies,
    ):
        for command in commands:
            connection.sendall(_encode(command))
            answer = _decode(replies)
    return answer


def _encode(words: tuple[str, ...]) -> bytes:
    encoded = [word.encode() for word in words]
    parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%s" % (len(parts), b"".join(parts))


def _decode(replies: BinaryIO) -> Answer:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2].decode()
    match kind:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"$":
            return None if rest == "-1" else replies.read(int(rest) + 2)[:-2].decode()
        case b"*":
            return None if rest == "-1" else [_decode(replies) for _ in range(int(rest))]
        case _:
            raise ServerFailed(f"redis answered {rest}")
