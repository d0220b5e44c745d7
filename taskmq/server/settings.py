"""Settings of one server."""

import math
from typing import Final

import msgspec

from taskmq.errors import InvalidSetting

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names and addresses of this machine."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one server.

    Attributes:
        host, port: the address to listen on; by default only this machine.
        root_path: the public path prefix, such as `/taskmq`, whether or not a proxy strips it.
        read_only: reject all changes.
        environment: the environment, such as `production`. The dashboard shows it and asks for confirmation twice.
        development: serve without sign-in, only on this machine; every caller is an admin of the instance.
        body_limit: the maximum size of a request body, in bytes.
        streams: the maximum number of event streams per user.
        rate: requests per second and credential, with bursts of ten times as many, and four times as many per user; 0
            for no limit.
        token_age: the default lifetime of API tokens in seconds; None for no expiry.
        drain: how long the server reports that it is not ready before it stops, in seconds, so that load balancers
            notice.
        grace: how long requests may then take to finish, in seconds.
        request_seconds: the time limit for receiving a request with its body, and for the client to read each 16 KiB
            of a response.
        connections: the maximum number of connections, lower if the process may open fewer files. Beyond it, the
            connection that has waited longest for its client is closed.
        trusted_proxies: comma-separated addresses and networks of proxies whose `X-Forwarded-For` and
            `X-Forwarded-Proto` are trusted; "" for none, `*` for all. A development server trusts none.
        query_time: the time limit in seconds for a read until its response begins. The store cancels slower queries.
            0 for no limit.

    Raises:
        InvalidSetting: a value is out of range.
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
        """The maximum number of event streams in total, which leaves a quarter of the connections for requests."""
        return self.connections - self.connections // 4

    def __post_init__(self) -> None:
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise InvalidSetting(
                f"root path {self.root_path!r}must begin with a slash and not end with one, such as /taskmq"
            )
        if self.development and self.host not in LOOPBACK:
            raise InvalidSetting(f"host {self.host}: a server without sign-in may only listen on this machine")
        if not 0 <= self.rate < math.inf:
            raise InvalidSetting(f"rate {self.rate}: must be requests per second, or 0 for no limit")
        if self.token_age is not None and not 0 < self.token_age < math.inf:
            raise InvalidSetting(f"token age {self.token_age}: must be more than 0 seconds, or omitted for no limit")
        if not 0 <= self.drain < math.inf:
            raise InvalidSetting(f"drain {self.drain}: must be seconds, or 0 for none")
        if not 0 <= self.query_time < math.inf:
            raise InvalidSetting(f"query time {self.query_time}: must be seconds, or 0 for no limit")
        if self.connections < 1:
            raise InvalidSetting(f"connections {self.connections}: must be at least 1")
        if not 0 <= self.port < 1 << 16:
            raise InvalidSetting(f"port {self.port}: must be 1 to 65535, or 0 for any free port")
