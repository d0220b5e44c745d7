"""What each kind of receiver is posted, as its maker documents it. Pure.

slack      https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks (Mattermost, Discord's `/slack`)
teams      a message with an adaptive card, as workflows of Teams take it
pagerduty  Events API v2: one incident for each alert, which its `dedup_key` tells from others
telegram   `sendMessage` of a bot
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from taskmq.contracts.history import AlertNotice
from taskmq.model.history.alerts import AlertChange
from taskmq.model.history.channels import Channel
from taskmq.scheduler.alerts.messages import alertmanager_body, line_of, subject_line, webhook_body

__all__ = ["Post", "posts_of"]

_CHANGES: Final = 20
_SLACK: Final = 4_000
_TELEGRAM: Final = 4_096
_SUMMARY: Final = 1_024
_COLOURS: Final[Mapping[str, str]] = {
    "firing": "Attention",
    "again": "Attention",
    "resolved": "Good",
    "test": "Accent",
}


class Post(NamedTuple):
    """One request: JSON to a URL."""

    url: str
    body: bytes


def posts_of(notice: AlertNotice, channel: Channel) -> list[Post]:
    """What a notice is for a channel that is no mail; in this order."""
    return _RECEIVERS[channel.kind](notice, channel.target)


def _webhook(notice: AlertNotice, url: str) -> list[Post]:
    return [Post(url, webhook_body(notice))]


def _alertmanager(notice: AlertNotice, url: str) -> list[Post]:
    return [Post(f"{url.rstrip('/')}/api/v2/alerts", alertmanager_body(notice))]


def _slack(notice: AlertNotice, url: str) -> list[Post]:
    text = f"*{subject_line(notice)}*\n{_text(notice)}"
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        # Else a name could mention everybody, or show another link than it opens.
        text = text.replace(letter, written)
    return [_post(url, {"text": text[:_SLACK]})]


def _teams(notice: AlertNotice, url: str) -> list[Post]:
    colour = _COLOURS[notice.changes[0].kind]
    blocks: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _unlinked(subject_line(notice)), "weight": "Bolder", "size": "Medium",
         "color": colour, "wrap": True},
        *({"type": "TextBlock", "text": _unlinked(line), "wrap": True} for line in _lines(notice)),
    ]  # fmt: skip
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": blocks,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return [_post(url, {"type": "message", "attachments": [attachment]})]


def _pagerduty(notice: AlertNotice, url: str) -> list[Post]:
    parts = urlsplit(url)
    (key,) = parse_qs(parts.query)["routing_key"]
    enqueue = parts._replace(query="").geturl()
    # A test is an incident that is over at once.
    return [
        _post(enqueue, _incident(notice, change, key, action))
        for change in notice.changes
        for action in {"resolved": ("resolve",), "test": ("trigger", "resolve")}.get(change.kind, ("trigger",))
    ]


def _incident(notice: AlertNotice, change: AlertChange, key: str, action: str) -> dict[str, Any]:
    rule, alert = notice.rule, change.alert
    which = msgspec.json.encode([rule.tenant, rule.name, alert.subject])
    return {
        "routing_key": key,
        "event_action": action,
        "dedup_key": f"taskmq-{hashlib.sha256(which).hexdigest()[:32]}",
        "client": "taskmq",
        "payload": {
            "summary": line_of(rule, change)[:_SUMMARY],
            "source": alert.subject or "taskmq",
            "severity": rule.severity,
            "class": rule.metric,
            "group": rule.tenant or "taskmq",
            "component": rule.name,
            "custom_details": {
                "rule": rule.name, "subject": alert.subject, "value": alert.value, "threshold": rule.threshold,
                "tenant": rule.tenant, "note": rule.note, "notice": notice.id,
            },
        },
    }  # fmt: skip


def _telegram(notice: AlertNotice, url: str) -> list[Post]:
    parts = urlsplit(url)
    (chat,) = parse_qs(parts.query)["chat_id"]
    send = parts._replace(path=f"{parts.path.rstrip('/')}/sendMessage", query="").geturl()
    text = f"{subject_line(notice)}\n{_text(notice)}"
    return [_post(send, {"chat_id": chat, "text": text[:_TELEGRAM], "disable_web_page_preview": True})]


def _text(notice: AlertNotice) -> str:
    return "\n".join(_lines(notice))


def _lines(notice: AlertNotice) -> list[str]:
    rule = notice.rule
    lines = [line_of(rule, change) for change in notice.changes[:_CHANGES]]
    if (rest := len(notice.changes) - len(lines)) > 0:
        lines.append(f"and {rest} more")
    return [*lines, *([rule.note] if rule.note else [])]


def _unlinked(text: str) -> str:
    """Markdown of cards without what could be a link."""
    return text.replace("[", "(").replace("]", ")")


def _post(url: str, body: Mapping[str, Any]) -> Post:
    return Post(url, msgspec.json.encode(body))


_RECEIVERS: Final[Mapping[str, Callable[[AlertNotice, str], list[Post]]]] = {
    "webhook": _webhook,
    "alertmanager": _alertmanager,
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
    "telegram": _telegram,
}
