"""How one server is set up."""

import math
from typing import Final

import msgspec

from taskmq.api.values import API, MOST_ITEMS, MOST_PER_PAGE
from taskmq.errors import InvalidSetting

__all__ = ["API", "LOOPBACK", "MOST_ITEMS", "MOST_PER_PAGE", "ServerSettings"]

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""What this machine calls itself."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one server is set up.

    Attributes:
        host, port: where it listens; this machine alone by default.
        root_path: the prefix under which clients see it, such as `/taskmq`; also where a proxy leaves it on.
        read_only: nothing can be changed through this server.
        environment: what it serves, such as `production`; the dashboard shows it, and asks twice there.
        development: there is no sign-in; only for callers on this machine, whom it takes for an admin of the
            instance.
        body_limit: bytes of a request's body.
        streams: so many event streams may be open for one user.
        rate: requests a second of one credential, ten times as many at once, and four times as many of one user; 0:
            as many as come.
        token_age: seconds after which an API token ends that names no end; None: never.
        drain: seconds for which the server goes on after a signal to stop, saying that it is not ready: so long a
            load balancer may take to see that.
        grace: seconds that requests have to end in after that.
        request_seconds: a client has so many for each request, its body included, and so many in which it has to read
            at least 16 KiB of an answer.
        connections: so many may be open at a time, fewer where the process may open fewer files; for one more, the
            one that has waited for its client for longest is cut.
        trusted_proxies: addresses and networks, with commas between, of the proxies whose `X-Forwarded-For` and
            `X-Forwarded-Proto` count; "" for none, `*` for every peer. A server for development trusts none.
        query_time: so many seconds each read may take until its answer begins, and so long the store works for it;
            what takes longer is given up, here and in the store; 0: as long as it takes.

    Raises:
        InvalidSetting: a value that cannot be.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    root_path: str = ""
    read_only: bool = False
    environment: str = ""
    development: bool = False
    body_limit: int = 1 << 20
    streams: int = 10
    rate: float = 200.0
    token_age: float | None = None
    drain: float = 0.0
    grace: int = 10
    request_seconds: float = 30.0
    connections: int = 4_096
    query_time: float = 10.0
    trusted_proxies: str = ""

    @property
    def streams_together(self) -> int:
        """So many event streams may be open in all: a quarter of the connections is left for requests."""
        return self.connections - self.connections // 4

    def __post_init__(self) -> None:
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise InvalidSetting(
                f"root path {self.root_path!r}: it begins with a slash and ends without one: /taskmq"
            )
        if self.development and self.host not in LOOPBACK:
            raise InvalidSetting(f"host {self.host}: a server without sign-in listens on this machine alone")
        if not 0 <= self.rate < math.inf:
            raise InvalidSetting(f"rate {self.rate}: requests a second, or 0 for no limit")
        if self.token_age is not None and not 0 < self.token_age < math.inf:
            raise InvalidSetting(f"token age {self.token_age}: more than 0 seconds, or none for no limit")
        if not 0 <= self.drain < math.inf:
            raise InvalidSetting(f"drain {self.drain}: seconds, or 0 for none")
        if not 0 <= self.query_time < math.inf:
            raise InvalidSetting(f"query time {self.query_time}: seconds, or 0 for no limit")
        if self.connections < 1:
            raise InvalidSetting(f"connections {self.connections}: at least one")
        if not 0 <= self.port < 1 << 16:
            raise InvalidSetting(f"port {self.port}: 1 to 65535, or 0 for any that is free")
