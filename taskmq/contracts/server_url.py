"""Parsing of server URLs: hosts, credentials, TLS files, and options. Pure.

No message contains any part of a URL: pieces of a password that is not percent-encoded end up as host, port, path or
query.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn
from urllib.parse import parse_qsl, unquote

import msgspec

from taskmq.errors import InvalidSetting

_PARTS: Final = r"://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<name>[A-Za-z0-9._~%-]+))(?::(?P<port>[0-9]{1,5}))?")


class Host(msgspec.Struct, frozen=True):
    """A server of a URL."""

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
class ServerUrl:
    """The parts of a URL; user and password are decoded.

    Attributes:
        has_login: whether it names a user, even an empty one.
        hosts: with their ports, separated by commas.
        path: as written, with its slash.
    """

    scheme: str
    has_login: bool
    user: str
    password: str = field(repr=False)
    hosts: str
    path: str
    options: Mapping[str, str] = field(repr=False)


class UrlReader:
    """Parses URLs of one kind of server. Every method raises `InvalidSetting` for a part that cannot be parsed.

    Args:
        whose: the kind, for messages.
        schemes: the valid schemes.
        encoded: the parts in which special characters must be percent-encoded, in words.
        options: the options that may follow the "?".
    """

    def __init__(
        self, whose: str, *, schemes: Sequence[str], example: str, encoded: str, options: Sequence[str]
    ) -> None:
        self.encode: Final = f"a '/', '?', '#', '@', ':' or ',' in a {encoded} must be percent-encoded"
        self._whose = whose
        self._example = example
        self._options = options
        self._pattern = re.compile(f"(?P<scheme>{'|'.join(schemes)}){_PARTS}")

    def read(self, url: str) -> ServerUrl:
        """Split a URL into its parts."""
        if (parts := self._pattern.fullmatch(url)) is None:
            self.refuse(f"it looks like {self._example}; {self.encode}")
        login, _, hosts = parts["authority"].rpartition("@")
        user, _, password = login.partition(":")
        if "@" in login or ":" in password:
            self.refuse(self.encode)
        return ServerUrl(
            scheme=parts["scheme"],
            has_login=bool(login),
            user=self.decode(user),
            password=self.decode(password),
            hosts=hosts,
            path=parts["path"] or "",
            options=self._read_options(parts["query"] or ""),
        )

    def hosts(self, url: ServerUrl, port: int) -> tuple[Host, ...]:
        """Return the hosts with their ports, this port by default; "localhost" if there is no host."""
        return tuple(self._host(text, port) for text in (url.hosts or "localhost").split(","))

    def tls(self, url: ServerUrl, secure: str) -> Tls | None:
        """Return the TLS files, which only a URL of the secure scheme has; None for other schemes."""
        tls = Tls(*(url.options.get(name) for name in ("cafile", "certfile", "keyfile")))
        if url.scheme == secure:
            if tls.keyfile is not None and tls.certfile is None:
                self.refuse("keyfile needs certfile")
            return tls
        if tls != Tls():
            self.refuse(f"cafile, certfile and keyfile need {secure}://")
        return None

    def decode(self, text: str) -> str:
        """Decode percent-encoded text, which must be UTF-8."""
        try:
            return unquote(text, errors="strict")
        except UnicodeDecodeError:
            self.refuse("a percent-encoded part is not UTF-8")

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error for a URL that cannot be parsed."""
        raise InvalidSetting(f"the {self._whose} URL cannot be read: {reason}") from None

    def _host(self, text: str, default_port: int) -> Host:
        found = _HOST.fullmatch(text)
        if found is None or not 0 < (port := int(found["port"] or default_port)) < 65536:
            self.refuse(f"a host or port cannot be read; {self.encode}")
        return Host(self.decode(found["v6"] or found["name"]), port)

    def _read_options(self, query: str) -> dict[str, str]:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
        except ValueError:
            self.refuse(f"what follows the '?' cannot be read; {self.encode}")
        options = dict(pairs)
        if len(options) < len(pairs) or not options.keys() <= set(self._options):
            names = ", ".join(self._options)
            self.refuse(f"the options after the '?' are {names}, each once at most; {self.encode}")
        return options
