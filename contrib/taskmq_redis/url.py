"""`redis://`, `rediss://` and `unix://` URLs. Pure.

No message here shows any part of a URL: where a password was not percent-encoded, its pieces turn up as host,
port, path or query.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from taskmq.errors import InvalidSetting
from taskmq.model.units import seconds_in

__all__ = ["Endpoint", "Host", "Tls", "parse_url"]

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
_PARTS = re.compile(
    r"(?P<scheme>redis|rediss|unix)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[A-Za-z0-9._~%-]+))(?::(?P<port>[0-9]{1,5}))?")
_ENCODE: Final = "a '/', '?', '#', '@', ':' or ',' in a user or password must be percent-encoded"


class Host(msgspec.Struct, frozen=True):
    """One server of a URL."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Tls(msgspec.Struct, frozen=True):
    """Files for TLS; the server's certificate and name are always verified."""

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the state is, and who we are there.

    Attributes:
        hosts: tried in turn; nodes of one cluster, a primary and its replicas, or the sentinels of `service`.
        path: of a Unix socket, instead of hosts.
        database: its number.
        prefix: of all keys and channels.
        timeout: seconds for a call.
        service: the name under which the sentinels know the primary; "": the hosts are the servers themselves.
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
        """The same endpoint with the account of the sentinels."""
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
    """The endpoint that `redis://user:password@host1:6379,host2/0?prefix=taskmq&timeout=5` names.

    Raises:
        InvalidSetting: it cannot be read.
    """
    if (parts := _PARTS.fullmatch(url)) is None:
        _refuse(f"it looks like redis://:password@host:6379/0 or unix:///path/to/socket?db=0; {_ENCODE}")
    credentials, _, hosts = parts["authority"].rpartition("@")
    user, _, password = credentials.partition(":")
    if "@" in credentials or ":" in password:
        _refuse(_ENCODE)
    options = _options(parts["query"] or "")
    service = _service(options)
    port = _SENTINEL_PORT if service else _PORT
    is_socket = parts["scheme"] == "unix"
    path = _decode(parts["path"] or "")
    if is_socket and (hosts or len(path) < 2):
        _refuse(f"a Unix socket looks like unix:///path/to/socket; {_ENCODE}")
    if is_socket and service:
        _refuse("sentinel needs the hosts of the sentinels, as redis://host1,host2,host3/0?sentinel=NAME")
    return Endpoint(
        hosts=() if is_socket else tuple(_host(text, port) for text in (hosts or "localhost").split(",")),
        path=path if is_socket else None,
        user=_decode(user),
        password=_decode(password),
        database=_database("" if is_socket else path.removeprefix("/"), options),
        prefix=_prefix(options),
        timeout=_timeout(options),
        tls=_tls(parts["scheme"], options),
        service=service,
        sentinel_user=options.get("sentinel_user", ""),
        sentinel_password=options.get("sentinel_password", ""),
    )


def _host(text: str, default_port: int) -> Host:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < (port := int(found["port"] or default_port)) < 65536:
        _refuse(f"a host or port cannot be read; {_ENCODE}")
    return Host(_decode(found["v6"] or found["name"]), port)


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        _refuse(f"what follows the '?' cannot be read; {_ENCODE}")
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= set(_KNOWN):
        _refuse(f"the options after the '?' are {', '.join(_KNOWN)}, each once at most; {_ENCODE}")
    return options


def _database(path: str, options: dict[str, str]) -> int:
    text = options.get("db", path or "0")
    if (path and "db" in options) or not re.fullmatch(r"[0-9]{1,5}", text):
        _refuse(f"the database is a number, after the host or as db=; {_ENCODE}")
    return int(text)


def _prefix(options: dict[str, str]) -> str:
    text = options.get("prefix", _PREFIX)
    # A brace would be taken for a hash tag.
    if not re.fullmatch(r"[A-Za-z0-9_.:/-]{1,64}", text):
        _refuse("prefix is 1 to 64 letters, digits and _ . : / -")
    return text


def _service(options: dict[str, str]) -> str:
    text = options.get("sentinel", "")
    if "sentinel" in options and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        _refuse("sentinel is the name of the service as the sentinels know it: letters, digits and . _ -")
    if not text and not options.keys().isdisjoint(("sentinel_user", "sentinel_password")):
        _refuse("sentinel_user and sentinel_password need sentinel")
    return text


def _timeout(options: dict[str, str]) -> float:
    seconds = seconds_in(options.get("timeout", str(_TIMEOUT)))
    if seconds is None or not 0 < seconds <= _LONGEST_TIMEOUT:
        _refuse(f"timeout is a number of seconds, or such as '500ms', above 0 and up to {_LONGEST_TIMEOUT:g} s")
    return seconds


def _tls(scheme: str, options: dict[str, str]) -> Tls | None:
    tls = Tls(options.get("cafile"), options.get("certfile"), options.get("keyfile"))
    if scheme == "rediss":
        if tls.keyfile is not None and tls.certfile is None:
            _refuse("keyfile needs certfile")
        return tls
    if tls != Tls():
        _refuse("cafile, certfile and keyfile need rediss://")
    return None


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse("a percent-encoded part is not UTF-8")


def _refuse(reason: str) -> NoReturn:
    raise InvalidSetting(f"the state URL cannot be read: {reason}") from None
