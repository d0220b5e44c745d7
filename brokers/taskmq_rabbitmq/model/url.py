"""`amqp://` and `amqps://` URLs. Pure except for the certificate files.

As `contracts.server_url` states, no message contains any part of a URL.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from taskmq.contracts.server_url import Host, Tls, UrlReader
from taskmq.errors import InvalidSetting
from taskmq.model.units import seconds_in
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS

Auth = Literal["password", "external"]
Wire = Literal["fast", "plain"]
Declare = Literal["auto", "off"]

_Word = TypeVar("_Word", bound=str)

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
# User code that blocks the loop for a minute does not cost the connection (see `heartbeats`).
_HEARTBEAT: Final = 45
_KNOWN: Final = (
    "heartbeat",
    "cafile",
    "certfile",
    "keyfile",
    "auth",
    "token_file",
    "oauth2_token_url",
    "oauth2_scope",
    "wire",
    "declare",
    "management",
    "archive",
    "archive_bytes",
    "consumer_timeout",
)
_ARCHIVE_BYTES: Final = 5_000_000_000
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_URL: Final = UrlReader(
    "broker",
    schemes=[*_PORTS],
    example="amqp://user:password@host:5672/vhost",
    encoded="user, password or virtual host",
    options=_KNOWN,
)


class TokenFile(msgspec.Struct, frozen=True):
    """A file whose text is the password: an OAuth 2 token that another program renews, or a password."""

    path: str


class TokenServer(msgspec.Struct, frozen=True):
    """The server that issues tokens for the client id and secret, which are user and password of the URL."""

    url: str
    scope: str | None = None


class Archive(msgspec.Struct, frozen=True):
    """Retention of the copies of dead letters: `age` in RabbitMQ's units ("30D", "12h"), and `bytes` in total."""

    age: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of the broker, and credentials.

    Attributes:
        user: "" if the broker takes the name from a token or a certificate.
        heartbeat: interval in seconds; 0 disables them.
        wire: `fast` reads and writes the frames of messages here, `plain` leaves them to pika.
        declare: `off` declares nothing and needs no configure permission: a missing object is an error.
        management: base URL of RabbitMQ's HTTP API; None: port 15672 (15671 with TLS) of each host in turn.
        archive: retention of copies of dead letters in a stream; None: there is no stream.
        consumer_timeout: seconds after which the nodes, up to 4.2, take unsettled deliveries back; None: never.
        auth: `external` lets the broker take the user from the client certificate.
        token: source of the password, if the URL does not contain it.
    """

    hosts: tuple[Host, ...]
    user: str
    password: str = field(repr=False)
    vhost: str = "/"
    tls: Tls | None = None
    heartbeat: int = _HEARTBEAT
    wire: Wire = "fast"
    declare: Declare = "auto"
    management: str | None = None
    archive: Archive | None = None
    consumer_timeout: float | None = DEFAULT_SECONDS
    auth: Auth = "password"
    token: TokenFile | TokenServer | None = None

    @property
    def address(self) -> str:
        """URL without the password and the options."""
        scheme = "amqp" if self.tls is None else "amqps"
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        hosts = ",".join(map(str, self.hosts))
        return f"{scheme}://{user}{hosts}/{quote(self.vhost, safe='')}"


def parse_url(url: str) -> Endpoint:
    """Parse a URL such as `amqp://user:password@host1:5672,host2/vhost?heartbeat=30`.

    Raises:
        InvalidSetting: it cannot be read.
    """
    parts = _URL.read(url)
    options = parts.options
    tls = _URL.tls(parts, secure="amqps")
    auth = _auth(options, tls, has_login=parts.has_login)
    token = _token(options, parts.user, parts.password)
    unnamed = "guest" if auth == "password" and token is None else ""
    return Endpoint(
        hosts=_URL.hosts(parts, _PORTS[parts.scheme]),
        user=parts.user if parts.has_login else unnamed,
        password=parts.password if parts.has_login else unnamed,
        vhost=_vhost(parts.path),
        tls=tls,
        heartbeat=_heartbeat(options),
        wire=_one_of(options, "wire", "fast", "plain"),
        declare=_one_of(options, "declare", "auto", "off"),
        management=_management(options),
        archive=_archive(options),
        consumer_timeout=_consumer_timeout(options),
        auth=auth,
        token=token,
    )


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Create a TLS context for clients with these files.

    Raises:
        InvalidSetting: a file cannot be read.
    """
    option = "cafile"
    try:
        context = ssl.create_default_context(cafile=tls.cafile)
        if tls.certfile is not None:
            option = "certfile" if tls.keyfile is None else "certfile or keyfile"
            # Without a password given here OpenSSL would ask for one on the terminal.
            context.load_cert_chain(tls.certfile, tls.keyfile, password="")
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"the broker URL's {option} cannot be used: {_reason(error)}") from error
    return context


def _vhost(path: str) -> str:
    segment = path.removeprefix("/")
    if "/" in segment or "@" in segment:
        _refuse(f"the virtual host cannot be read; {_URL.encode}")
    return _URL.decode(segment) or "/"


def _auth(options: Mapping[str, str], tls: Tls | None, *, has_login: bool) -> Auth:
    auth: Auth = _one_of(options, "auth", "password", "external")
    if auth == "external":
        if tls is None or tls.certfile is None:
            _refuse("auth=external needs amqps:// and certfile: the user is the one that the certificate names")
        if has_login or options.keys() & {"token_file", "oauth2_token_url"}:
            _refuse("with auth=external there is no user, password or token in the URL")
    return auth


def _token(options: Mapping[str, str], user: str, password: str) -> TokenFile | TokenServer | None:
    path, url, scope = (options.get(name) for name in ("token_file", "oauth2_token_url", "oauth2_scope"))
    if url is None:
        if scope is not None:
            _refuse("oauth2_scope needs oauth2_token_url")
        if path is not None and (password or not path):
            _refuse("token_file names the file that holds the password: no password beside it")
        return None if path is None else TokenFile(path)
    if path is not None or not user or not password:
        _refuse("oauth2_token_url needs the client id as user and the client secret as password, and no token_file")
    return TokenServer(_token_url(url), scope)


def _token_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        readable = parts.hostname is not None and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        _refuse("oauth2_token_url cannot be read")
    if not readable or re.search(r"\s", url) or parts.scheme not in {"http", "https"}:
        _refuse("oauth2_token_url is a percent-encoded https:// address without credentials")
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        _refuse("oauth2_token_url has to be https://: the client secret goes there")
    return url


def _reason(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    words = (error.reason or "").replace("_", " ").lower()
    return words or "it is not PEM, or its key is encrypted"


def _heartbeat(options: Mapping[str, str]) -> int:
    seconds = seconds_in(options.get("heartbeat", str(_HEARTBEAT)))
    if seconds is None or seconds % 1 or seconds >= 65536:
        _refuse("heartbeat is a whole number of seconds, 0 to 65535, or such as '30s'")
    return int(seconds)


def _one_of(options: Mapping[str, str], name: str, default: _Word, other: _Word) -> _Word:
    text = options.get(name, default)
    if text == other:
        return other
    if text != default:
        _refuse(f"{name} is '{default}' or '{other}'")
    return default


def _archive(options: Mapping[str, str]) -> Archive | None:
    age, size = options.get("archive"), options.get("archive_bytes", str(_ARCHIVE_BYTES))
    if age is None:
        if "archive_bytes" in options:
            _refuse("archive_bytes needs archive")
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,4}[hd]", age) or not re.fullmatch(r"[1-9][0-9]{0,17}", size):
        _refuse("archive is a number of hours or days, such as 12h or 30d, and archive_bytes a number of bytes")
    # RabbitMQ writes days in capitals.
    return Archive(age.replace("d", "D"), int(size))


def _consumer_timeout(options: Mapping[str, str]) -> float | None:
    text = options.get("consumer_timeout", str(int(DEFAULT_SECONDS)))
    if text == "off":
        return None
    seconds = seconds_in(text)
    if seconds is None or seconds % 1 or not 1 <= seconds < 10**8:
        _refuse(
            "consumer_timeout is a whole number of seconds, or such as '45m': what the nodes have in milliseconds; "
            "or 'off'"
        )
    return seconds


def _management(options: Mapping[str, str]) -> str | None:
    text = options.get("management")
    if text is not None and not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", text):
        _refuse("management is an http:// or https:// address without credentials")
    return None if text is None else text.rstrip("/")


def _refuse(reason: str) -> NoReturn:
    _URL.refuse(reason)
