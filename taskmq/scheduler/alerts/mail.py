"""Mail over SMTP. Imported with the first mail, because it needs large parts of the standard library."""

import smtplib
import ssl
from email.message import EmailMessage
from typing import Final

from taskmq.contracts.history import AlertNotice
from taskmq.scheduler.alerts.http import DeliveryFailed
from taskmq.scheduler.alerts.messages import line_of, subject_line
from taskmq.scheduler.alerts.settings import MailServer

_TIMEOUT: Final = 15.0


def mail_of(notice: AlertNotice, recipient: str, sender: str) -> EmailMessage:
    """Build the mail of a notice."""
    message = EmailMessage()
    message["Subject"] = subject_line(notice)
    message["From"] = sender
    message["To"] = recipient
    # Equal for a repeated send whose first result is unknown, so that mail programs show it once.
    message["Message-ID"] = f"<{notice.id}@taskmq.invalid>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_text(notice))
    return message


def _text(notice: AlertNotice) -> str:
    rule = notice.rule
    lines = [line_of(rule, change) for change in notice.changes]
    whose = f" of tenant {rule.tenant}" if rule.tenant else ""
    return "\n".join([*lines, "", f"Rule {rule.name}{whose}, {rule.severity}.", rule.note]).rstrip() + "\n"


def send_mail(server: MailServer, message: EmailMessage) -> None:
    """Send a mail through the server; blocks the calling thread.

    Raises:
        DeliveryFailed: the server did not accept it.
    """
    try:
        with _connect(server) as connection:
            if server.security == "smtp+starttls":
                connection.starttls(context=ssl.create_default_context())
            if server.user:
                connection.login(server.user, server.password)
            connection.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise DeliveryFailed(
            f"{server.host} refused the recipient's address", is_final=all(code >= 500 for code in codes)
        ) from error
    except UnicodeError:
        # The error itself would reveal the characters.
        raise DeliveryFailed(f"{server.host}: user and password in TASKMQ_SMTP_URL must be ASCII") from None
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryFailed(f"{server.host}:{server.port}: {type(error).__name__}") from error


def _connect(server: MailServer) -> smtplib.SMTP:
    if server.security == "smtps":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, timeout=_TIMEOUT, context=context)
    return smtplib.SMTP(server.host, server.port, timeout=_TIMEOUT)
