"""How a scheduler notifies people of alerts. Secrets come from the environment, and are never logged."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from taskmq.errors import InvalidSetting

__all__ = ["AlertSettings", "MailServer"]

_PORTS: Final = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class MailServer(msgspec.Struct, frozen=True, kw_only=True):
    """An SMTP server that mail goes through.

    Attributes:
        security: `smtp`: none; `smtp+starttls`; `smtps`: TLS from the beginning.
    """

    host: str
    port: int
    security: str
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<MailServer {self.host}:{self.port} {self.security}>"


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a scheduler's alerts.

    Attributes:
        mail: through which mail is sent; None: none is.
        sender: whose mail it is.
        secret: webhooks are signed with it; "": they are not signed.
        allows_private: webhooks may be on this machine and in private networks.
        heartbeat: a URL that is asked each minute for as long as rules are looked at; "": none.
    """

    mail: MailServer | None = None
    sender: str = "taskmq@localhost"
    secret: str = ""
    allows_private: bool = False
    heartbeat: str = ""

    def __repr__(self) -> str:
        return f"<AlertSettings mail={self.mail!r} allows_private={self.allows_private}>"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "AlertSettings":
        """What the environment says.

        TASKMQ_SMTP_URL (`smtp+starttls://user:password@host:587`), TASKMQ_ALERT_SENDER, TASKMQ_WEBHOOK_SECRET,
        TASKMQ_WEBHOOK_ALLOW_PRIVATE (`1`), TASKMQ_ALERT_HEARTBEAT_URL.

        Raises:
            InvalidSetting: a value that cannot be.
        """
        url = environment.get("TASKMQ_SMTP_URL", "")
        heartbeat = environment.get("TASKMQ_ALERT_HEARTBEAT_URL", "")
        if heartbeat and not heartbeat.startswith(("https://", "http://")):
            raise InvalidSetting("TASKMQ_ALERT_HEARTBEAT_URL: it begins with https:// or http://")
        return cls(
            mail=_mail_server(url) if url else None,
            sender=environment.get("TASKMQ_ALERT_SENDER") or "taskmq@localhost",
            secret=environment.get("TASKMQ_WEBHOOK_SECRET", ""),
            allows_private=environment.get("TASKMQ_WEBHOOK_ALLOW_PRIVATE", "") == "1",
            heartbeat=heartbeat,
        )


def _mail_server(url: str) -> MailServer:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname:
        # Not the URL itself: it may have a password.
        raise InvalidSetting(
            "TASKMQ_SMTP_URL: it looks like smtp+starttls://user:password@host:587, smtps:// or smtp://"
        )
    return MailServer(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        security=parts.scheme,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
