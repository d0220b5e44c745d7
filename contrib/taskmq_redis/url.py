"""`redis://`, `rediss://` and `unix://` URLs. Pure.

As `contracts.server_url` requires, no message shows any part of a URL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn
from urllib.parse import quote

from taskmq.contracts.server_url import Host, Tls, UrlReader
from taskmq.model.units import seconds_in

_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_TIMEOUT: Final = 5.0
_LONGEST_TIMEOUT: Final = 60.0
_PREFIX: Final = "taskmq"
_KNOWN: Final = (
    "prefix",
    "timeout",
    "db",
    "cafile",
    "certfile",
    "keyfile",
    "sentinel",
    "sentinel_user",
    "sentinel_password",
)
_URL: Final = UrlReader(
    "state",
    schemes=("redis", "rediss", "unix"),
    example="redis://:password@host:6379/0 or unix:///path/to/socket?db=0",
    encoded="user or password",
    options=_KNOWN,
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The location of the state, and the credentials for it.

    Attributes:
        hosts: tried in turn; nodes of one cluster, a primary and its replicas, or the sentinels of `service`.
        path: of a Unix socket, instead of hosts.
        database: its number.
        prefix: of all keys and channels.
        timeout: seconds for a call.
        service: the primary's name at the sentinels; "": the hosts are the servers themselves.
    """

    hosts: tuple[Host, ...] = ()
    path: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    prefix: str = _PREFIX
    timeout: float = _TIMEOUT
    tls: Tls | None = None
    service: str = ""
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)

    @property
    def of_sentinels(self) -> "Endpoint":
        """The same endpoint with the sentinels' account."""
        return replace(self, user=self.sentinel_user, password=self.sentinel_password, database=0, service="")

    @property
    def address(self) -> str:
        """The URL without the password and the options."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        if self.path is not None:
            return f"unix://{user}{quote(self.path)}?db={self.database}"
        scheme = "redis" if self.tls is None else "rediss"
        service = f"?sentinel={self.service}" if self.service else ""
        return f"{scheme}://{user}{','.join(map(str, self.hosts))}/{self.database}{service}"


def parse_url(url: str) -> Endpoint:
    """Parse a URL such as `redis://user:password@host1:6379,host2/0?prefix=taskmq&timeout=5`.

    Raises:
        InvalidSetting: the URL is malformed.
    """
    parts = _URL.read(url)
    options = parts.options
    service = _service(options)
    is_socket = parts.scheme == "unix"
    path = _URL.decode(parts.path)
    if is_socket and (parts.hosts or len(path) < 2):
        _refuse(f"a Unix socket looks like unix:///path/to/socket; {_URL.encode}")
    if is_socket and service:
        _refuse("sentinel needs the hosts of the sentinels, as redis://host1,host2,host3/0?sentinel=NAME")
    return Endpoint(
        hosts=() if is_socket else _URL.hosts(parts, _SENTINEL_PORT if service else _PORT),
        path=path if is_socket else None,
        user=parts.user,
        password=parts.password,
        database=_database("" if is_socket else path.removeprefix("/"), options),
        prefix=_prefix(options),
        timeout=_timeout(options),
        tls=_URL.tls(parts, secure="rediss"),
        service=service,
        sentinel_user=options.get("sentinel_user", ""),
        sentinel_password=options.get("sentinel_password", ""),
    )


def _database(path: str, options: Mapping[str, str]) -> int:
    text = options.get("db", path or "0")
    if (path and "db" in options) or not re.fullmatch(r"[0-9]{1,5}", text):
        _refuse(f"the database must be a number, after the host or as db=; {_URL.encode}")
    return int(text)


def _prefix(options: Mapping[str, str]) -> str:
    text = options.get("prefix", _PREFIX)
    # A brace would become a hash tag.
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]{1,64}", text):
        _refuse("prefix must be 1 to 64 letters, digits and _ . : / -")
    return text


def _service(options: Mapping[str, str]) -> str:
    text = options.get("sentinel", "")
    if "sentinel" in options and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        _refuse("sentinel must be the service's name at the sentinels: letters, digits and . _ -")
    if not text and not options.keys().isdisjoint(("sentinel_user", "sentinel_password")):
        _refuse("sentinel_user and sentinel_password require sentinel")
    return text


def _timeout(options: Mapping[str, str]) -> float:
    seconds = seconds_in(options.get("timeout", str(_TIMEOUT)))
    if seconds is None or not 0 < seconds <= _LONGEST_TIMEOUT:
        _refuse(f"timeout must be a number of seconds, or such as '500ms', above 0 and up to {_LONGEST_TIMEOUT:g} s")
    return seconds


def _refuse(reason: str) -> NoReturn:
    _URL.refuse(reason)
