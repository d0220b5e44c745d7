"""`amqp://` and `amqps://` URLs. Pure but for the certificate files.

No message here shows any part of a URL: where a password was not percent-encoded, its pieces turn up as host,
port, virtual host or query.
"""

import re
import ssl
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from taskmq.errors import InvalidSetting
from taskmq.model.units import seconds_in
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS

__all__ = [
    "Archive",
    "Auth",
    "Declare",
    "Endpoint",
    "Host",
    "Tls",
    "TokenFile",
    "TokenServer",
    "Wire",
    "parse_url",
]

Auth = Literal["password", "external"]
Wire = Literal["fast", "plain"]
Declare = Literal["auto", "off"]

_Word = TypeVar("_Word", bound=str)

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
# User code that holds up the loop for a minute does not cost the connection (see `heartbeats`).
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
_PARTS = re.compile(r"(?P<scheme>amqps?)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[A-Za-z0-9._~%-]+))(?::(?P<port>[0-9]{1,5}))?")
_ENCODE: Final = "a '/', '?', '#', '@', ':' or ',' in a user, password or virtual host must be percent-encoded"


class Host(msgspec.Struct, frozen=True):
    """One node of the broker."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Tls(msgspec.Struct, frozen=True):
    """Files for TLS; the server's certificate and name are always verified."""

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    def context(self) -> ssl.SSLContext:
        """Make a TLS context for clients of these settings.

        Raises:
            InvalidSetting: a file cannot be read.
        """
        option = "cafile"
        try:
            context = ssl.create_default_context(cafile=self.cafile)
            if self.certfile is not None:
                option = "certfile" if self.keyfile is None else "certfile or keyfile"
                # Without a password given here OpenSSL would ask for one on the terminal.
                context.load_cert_chain(self.certfile, self.keyfile, password="")
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"the broker URL's {option} cannot be used: {_reason(error)}") from error
        return context


class TokenFile(msgspec.Struct, frozen=True):
    """A file whose text is the password: an OAuth 2 token that another program renews, or a password."""

    path: str


class TokenServer(msgspec.Struct, frozen=True):
    """Where tokens are had for the client id and the client secret that stand as user and password."""

    url: str
    scope: str | None = None


class Archive(msgspec.Struct, frozen=True):
    """How long copies of dead letters are kept: `age` in RabbitMQ's words ("30D", "12h"), and `bytes` together."""

    age: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the broker is, and who we are there.

    Attributes:
        user: "" where the broker takes the name from a token or a certificate.
        heartbeat: seconds; 0 is off.
        wire: `fast` reads and writes the frames of messages here, `plain` leaves them to pika.
        declare: `off` declares nothing and asks for no configure permission: what is missing is an error.
        management: base URL of RabbitMQ's HTTP API; None: port 15672 (15671 with TLS) of each host in turn.
        archive: how long a stream keeps copies of dead letters; None: there is none.
        consumer_timeout: seconds after which the nodes, up to 4.2, take back what is unsettled; None: never.
        auth: `external` lets the broker take the user from the client certificate.
        token: where the password comes from instead, and is renewed from.
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
        """The URL without the password and the options."""
        scheme = "amqp" if self.tls is None else "amqps"
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        hosts = ",".join(map(str, self.hosts))
        return f"{scheme}://{user}{hosts}/{quote(self.vhost, safe='')}"


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
    tls = _tls(scheme, options)
    auth = _auth(options, credentials, tls)
    token = _token(options, user, password)
    unnamed = "guest" if auth == "password" and token is None else ""
    return Endpoint(
        hosts=tuple(_host(text, _PORTS[scheme]) for text in (hosts or "localhost").split(",")),
        user=_decode(user) if credentials else unnamed,
        password=_decode(password) if credentials else unnamed,
        vhost=_vhost(parts["path"] or ""),
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
    if "delay" in options:
        _refuse(
            f"the option delay={options['delay']} does not exist any more, remove it: delayed messages wait on the "
            "delay ladder, or in the state with TaskMQ(delay='state')"
        )
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


def _auth(options: dict[str, str], credentials: str, tls: Tls | None) -> Auth:
    auth: Auth = _one_of(options, "auth", "password", "external")
    if auth == "external":
        if tls is None or tls.certfile is None:
            _refuse("auth=external needs amqps:// and certfile: the user is the one that the certificate names")
        if credentials or options.keys() & {"token_file", "oauth2_token_url"}:
            _refuse("with auth=external there is no user, password or token in the URL")
    return auth


def _token(options: dict[str, str], user: str, password: str) -> TokenFile | TokenServer | None:
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


def _heartbeat(options: dict[str, str]) -> int:
    seconds = seconds_in(options.get("heartbeat", str(_HEARTBEAT)))
    if seconds is None or seconds % 1 or seconds >= 65536:
        _refuse("heartbeat is a whole number of seconds, 0 to 65535, or such as '30s'")
    return int(seconds)


def _one_of(options: dict[str, str], name: str, default: _Word, other: _Word) -> _Word:
    text = options.get(name, default)
    if text == other:
        return other
    if text != default:
        _refuse(f"{name} is '{default}' or '{other}'")
    return default


def _archive(options: dict[str, str]) -> Archive | None:
    age, size = options.get("archive"), options.get("archive_bytes", str(_ARCHIVE_BYTES))
    if age is None:
        if "archive_bytes" in options:
            _refuse("archive_bytes needs archive")
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,4}[hd]", age) or not re.fullmatch(r"[1-9][0-9]{0,17}", size):
        _refuse("archive is a number of hours or days, such as 12h or 30d, and archive_bytes a number of bytes")
    # RabbitMQ writes days in capitals.
    return Archive(age.replace("d", "D"), int(size))


def _consumer_timeout(options: dict[str, str]) -> float | None:
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


def _management(options: dict[str, str]) -> str | None:
    text = options.get("management")
    if text is not None and not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", text):
        _refuse("management is an http:// or https:// address without credentials")
    return None if text is None else text.rstrip("/")


def _decode(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse("a percent-encoded part is not UTF-8")


def _refuse(reason: str) -> NoReturn:
    raise InvalidSetting(f"the broker URL cannot be read: {reason}") from None
