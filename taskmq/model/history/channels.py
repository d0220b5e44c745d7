"""Channels of alerts, as URLs. Pure.

mailto:ops@example.com              mail, over the SMTP server that the scheduler was given
https://hooks.example.com/alerts    a webhook: JSON, signed
alertmanager+https://am.example.com an Alertmanager, which then sends the notices
slack+https://, teams+https://      a webhook of Slack (or what takes the same), of a workflow of Teams
pagerduty+https://HOST/v2/enqueue?routing_key=KEY, telegram+https://HOST/botTOKEN?chat_id=ID

`#warning` or `#critical` at the end: rules of a lower severity are not sent there.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import parse_qs, unquote, urlsplit

from taskmq.errors import InvalidOption
from taskmq.model.history.alerts import Severity

_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
_HOST_END: Final = re.compile(r"[/?#\\]")
_LONGEST: Final = 1_000
_SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)

Kind = Literal["mail", "webhook", "alertmanager", "slack", "teams", "pagerduty", "telegram"]

_PREFIXED: Final[Mapping[str, Kind]] = {
    f"{kind}+": kind for kind in ("alertmanager", "slack", "teams", "pagerduty", "telegram")
}
_DEMANDED: Final[Mapping[Kind, str]] = {"pagerduty": "routing_key", "telegram": "chat_id"}


class Channel(NamedTuple):
    """A target of notices.

    Attributes:
        target: the mail address, or the URL without the kind's prefix and without the severity.
    """

    kind: Kind
    target: str


def parse_channel(text: str) -> Channel:
    """Parse the URL of a channel.

    Raises:
        InvalidOption: the text is not a channel. The message leaves out what may be a secret.
    """
    if len(text) > _LONGEST or any(letter <= " " for letter in text):
        raise InvalidOption(
            f"channel {shown_channel(text)[:60]!r}: must be a URL without spaces, of at most {_LONGEST} characters"
        )
    severity = _severity_of(text)
    target = text if severity is None else text.removesuffix(f"#{severity}")
    if target.startswith("mailto:"):
        address = unquote(target.removeprefix("mailto:"))
        if _ADDRESS.fullmatch(address) is None:
            raise InvalidOption(f"channel {text[:60]!r}: must be one address, such as mailto:ops@example.com")
        return Channel("mail", address)
    shown = shown_channel(text)[:60]
    prefix = next((prefix for prefix in _PREFIXED if target.startswith(prefix)), "")
    kind: Kind = _PREFIXED.get(prefix, "webhook")
    url = target.removeprefix(prefix)
    try:
        parts = urlsplit(url)
        port = parts.port
        # The resolver encodes names like this: an empty or too long part raises `UnicodeError`, a `ValueError`.
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise InvalidOption(f"channel {shown!r}: is not a URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        kinds = ", ".join(f"{prefix}https:" for prefix in _PREFIXED)
        raise InvalidOption(f"channel {shown!r}: must have a host, and begin with mailto:, https:, http:, or {kinds}")
    if parts.username or parts.password:
        raise InvalidOption("channel: a webhook's URL must not contain a user or password: its notices are signed")
    if parts.fragment:
        raise InvalidOption(f"channel {shown!r}: after # write {', '.join(_SEVERITIES)}, or omit it")
    if (name := _DEMANDED.get(kind)) is not None and len(parse_qs(parts.query).get(name, ())) != 1:
        raise InvalidOption(f"channel {shown!r}: must contain ?{name}= once")
    return Channel(kind, url)


def is_told(text: str, severity: Severity) -> bool:
    """Return whether rules of that severity are sent to a channel."""
    return _SEVERITIES.index(severity) >= _SEVERITIES.index(_severity_of(text) or "info")


def is_told_singly(text: str) -> bool:
    """Return whether a channel takes one notice for each alert, which it opens and closes by itself."""
    return text.startswith("pagerduty+")


def shown_channel(text: str) -> str:
    """Return a channel without parts that may be secret, such as the path of a webhook."""
    scheme, separator, rest = text.partition("://")
    return f"{scheme}{separator}{_HOST_END.split(rest, maxsplit=1)[0]}" if separator else text


def channel_host(text: str) -> str:
    """Return the host that may keep a sender waiting: the host of the URL, or "mail" for the mail server."""
    rest = text.partition("://")[2]
    return _HOST_END.split(rest, maxsplit=1)[0].lower() if rest else "mail"


def _severity_of(text: str) -> Severity | None:
    end = text.rpartition("#")[2]
    return next((severity for severity in _SEVERITIES if severity == end and text != end), None)
