"""`amqp://` and `amqps://` URLs. Pure but for the certificate files.

No message here shows any part of a URL: where a password was not percent-encoded, its pieces turn up as host,
port, virtual host or query.
"""

import re
import ssl
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn
from urllib.parse import parse_qsl, quote, unquote

from taskmq.errors import InvalidSetting

__all__ = ["Endpoint", "Host", "Tls", "Wire", "parse_url"]

Wire = Literal["fast", "plain"]

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_HEARTBEAT: Final = 30
_KNOWN: Final = ("heartbeat", "cafile", "certfile", "keyfile", "wire")
_PARTS = re.compile(r"(?P<scheme>amqps?)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[A-Za-z0-9._~%-]+))(?::(?P<port>[0-9]{1,5}))?")
_ENCODE: Final = "a '/', '?', '#', '@', ':' or ',' in a user, password or virtual host must be percent-encoded"


@dataclass(frozen=True, slots=True)
class Host:
    """One node."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for TLS; the server's certificate and name are always verified."""

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def context(self) -> ssl.SSLContext:
        """A client context.

        Raises:
            InvalidSetting: a file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.cafile)
            if self.certfile is not None:
                context.load_cert_chain(self.certfile, self.keyfile)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"the broker URL's cafile, certfile or keyfile cannot be used: {error}") from error
        return context


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the broker is, and who we are there.

    Attributes:
        heartbeat: seconds; 0 is off.
        wire: `fast` reads and writes the frames of messages here, `plain` leaves them to pika.
    """

    hosts: tuple[Host, ...]
    user: str
    password: str = field(repr=False)
    vhost: str = "/"
    tls: Tls | None = None
    heartbeat: int = _HEARTBEAT
    wire: Wire = "fast"

    @property
    def address(self) -> str:
        """The URL without the password and the options."""
        scheme = "amqp" if self.tls is None else "amqps"
        hosts = ",".join(map(str, self.hosts))
        return f"{scheme}://{quote(self.user, safe='')}@{hosts}/{quote(self.vhost, safe='')}"


def parse_url(url: str) -> Endpoint:
    """The endpoint that `amqp://user:password@host1:5672,host2/vhost?heartbeat=30` names.

    Raises:
        InvalidSetting: it cannot be read.
    """
    if (parts := _PARTS.fullmatch(url)) is None:
        _refuse(f"it looks like amqp://user:password@host:5672/vhost; {_ENCODE}")
    scheme = parts["scheme"]
    credentials, _, hosts = parts["authority"].rpartition("@")
    user, _, password = credentials.partition(":")
    if "@" in credentials or ":" in password:
        _refuse(_ENCODE)
    options = _options(parts["query"] or "")
    return Endpoint(
        hosts=tuple(_host(text, _PORTS[scheme]) for text in (hosts or "localhost").split(",")),
        user=_decode(user) if credentials else "guest",
        password=_decode(password) if credentials else "guest",
        vhost=_vhost(parts["path"] or ""),
        tls=_tls(scheme, options),
        heartbeat=_heartbeat(options),
        wire=_wire(options),
    )


def _host(text: str, default_port: int) -> Host:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < (port := int(found["port"] or default_port)) < 65536:
        _refuse(f"a host or port cannot be read; {_ENCODE}")
    return Host(_decode(found["v6"] or found["name"]), port)


def _vhost(path: str) -> str:
    segment = path.removeprefix("/")
    if "/" in segment or "@" in segment:
        _refuse(f"the virtual host cannot be read; {_ENCODE}")
    return _decode(segment) or "/"


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        _refuse(f"what follows the '?' cannot be read; {_ENCODE}")
    options = dict(pairs)
    if len(options) < len(pairs) or not options.keys() <= set(_KNOWN):
        _refuse(f"the options after the '?' are {', '.join(_KNOWN)}, each once at most; {_ENCODE}")
    return options


def _tls(scheme: str, options: dict[str, str]) -> Tls | None:
    tls = Tls(options.get("cafile"), options.get("certfile"), options.get("keyfile"))
    if scheme == "amqps":
        if tls.keyfile is not None and tls.certfile is None:
            _refuse("keyfile needs certfile")
        return tls
    if tls != Tls():
        _refuse("cafile, certfile and keyfile need amqps://")
    return None


def _heartbeat(options: dict[str, str]) -> int:
    text = options.get("heartbeat", str(_HEARTBEAT))
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 <= int(text) < 65536:
        _refuse("heartbeat is a whole number of seconds, 0 to 65535")
    return int(text)


def _wire(options: dict[str, str]) -> Wire:
    text = options.get("wire", "fast")
    if text not in {"fast", "plain"}:
        _refuse("wire is 'fast' or 'plain'")
    return "plain" if text == "plain" else "fast"


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse("a percent-encoded part is not UTF-8")


def _refuse(reason: str) -> NoReturn:
    raise InvalidSetting(f"the broker URL cannot be read: {reason}") from None
