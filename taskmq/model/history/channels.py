"""Whom alerts are told to, as URLs. Pure.

mailto:ops@example.com              mail, over the SMTP server that the scheduler was given
https://hooks.example.com/alerts    a webhook: JSON, signed
alertmanager+https://am.example.com an Alertmanager, which then does the telling
"""

import ipaddress
import re
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from taskmq.errors import InvalidOption

__all__ = ["Channel", "is_public", "parse_channel", "shown_channel"]

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
_HOST_END: Final = re.compile(r"[/?#\\]")
_PREFIX: Final = "alertmanager+"
_LONGEST: Final = 1_000

Kind = Literal["mail", "webhook", "alertmanager"]


class Channel(NamedTuple):
    """One channel.

    Attributes:
        target: the address of mail, or the URL without what is before its scheme.
    """

    kind: Kind
    target: str


def parse_channel(text: str) -> Channel:
    """What a channel means.

    Raises:
        InvalidOption: it means nothing.
    """
    if len(text) > _LONGEST or any(letter <= " " for letter in text):
        raise InvalidOption(f"channel {text[:60]!r}: a URL without blanks, of at most {_LONGEST} characters")
    if text.startswith("mailto:"):
        address = unquote(text.removeprefix("mailto:"))
        if _ADDRESS.fullmatch(address) is None:
            raise InvalidOption(f"channel {text[:60]!r}: one address, such as mailto:ops@example.com")
        return Channel("mail", address)
    url = text.removeprefix(_PREFIX)
    try:
        parts = urlsplit(url)
        port = parts.port
        # As it is looked up: a name with an empty or too long part raises a `UnicodeError`, which is a `ValueError`.
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise InvalidOption(f"channel {text[:60]!r}: it is no URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InvalidOption(
            f"channel {text[:60]!r}: it begins with mailto:, https:, http: or alertmanager+https:, and has a host"
        )
    if parts.username or parts.password:
        raise InvalidOption("channel: a URL of a webhook has no user and password: it is signed instead")
    return Channel("alertmanager" if text.startswith(_PREFIX) else "webhook", url)


def shown_channel(text: str) -> str:
    """A channel without what may be a secret: the paths of webhooks often are."""
    scheme, separator, rest = text.partition("://")
    return f"{scheme}{separator}{_HOST_END.split(rest, maxsplit=1)[0]}" if separator else text


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not of this machine, of a private network, or of no use."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped or found.sixtofour if isinstance(found, ipaddress.IPv6Address) else None
    if mapped is not None:
        found = mapped
    return found.is_global and not found.is_multicast
