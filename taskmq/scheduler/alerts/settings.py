"""Settings for alert notices. Secrets come from the environment, and are never logged."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from taskmq.errors import InvalidSetting

_PORTS: Final = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class MailServer(msgspec.Struct, frozen=True, kw_only=True):
    """An SMTP server that mail goes through.

    Attributes:
        security: `smtp` (none), `smtp+starttls`, or `smtps` (TLS from the start).
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
        mail: server for mail; None: no mail is sent.
        sender: sender's address of mail.
        secret: key that signs webhooks; "": they are not signed.
        allows_private: whether webhooks may be on this host and in private networks.
        heartbeat: URL that gets a request each minute while rules are evaluated; "": none.
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
        """Read the settings from the environment.

        TASKMQ_SMTP_URL (`smtp+starttls://user:password@host:587`), TASKMQ_ALERT_SENDER, TASKMQ_WEBHOOK_SECRET,
        TASKMQ_WEBHOOK_ALLOW_PRIVATE (`1`), TASKMQ_ALERT_HEARTBEAT_URL.

        Raises:
            InvalidSetting: a value is invalid.
        """
        url = environment.get("TASKMQ_SMTP_URL", "")
        heartbeat = environment.get("TASKMQ_ALERT_HEARTBEAT_URL", "")
        if heartbeat and not heartbeat.startswith(("https://", "http://")):
            raise InvalidSetting("TASKMQ_ALERT_HEARTBEAT_URL: must start with https:// or http://")
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
        # The message omits the URL, which may contain a password.
        raise InvalidSetting(
            "TASKMQ_SMTP_URL: give a URL such as smtp+starttls://user:password@host:587, smtps:// or smtp://"
        )
    return MailServer(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        security=parts.scheme,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )
