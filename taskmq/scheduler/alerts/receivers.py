"""Requests to each kind of receiver, in its documented format. Pure.

slack      https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks (Mattermost, Discord's `/slack`)
teams      a message with an adaptive card, as workflows of Teams take it; at most 28 KB
pagerduty  https://developer.pagerduty.com/docs/events-api-v2/trigger-events/: an incident for each `dedup_key`
telegram   https://core.telegram.org/bots/api#sendmessage
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from taskmq.contracts.history import AlertNotice
from taskmq.model.history.alerts import AlertChange
from taskmq.model.history.channels import Channel
from taskmq.scheduler.alerts.messages import alertmanager_body, line_of, subject_line, webhook_body

_CHANGES: Final = 20
# Slack's limit. Discord permanently refuses longer texts.
_SLACK: Final = 4_000
_DISCORD: Final = 2_000
_DISCORD_HOSTS: Final = ("discord.com", "discordapp.com")
# Counted in UTF-16 units by Telegram.
_TELEGRAM: Final = 4_096
# For the text; the rest of the card is at most a quarter of it.
_TEAMS: Final = 20_000
_SUMMARY: Final = 1_024
_COLOURS: Final[Mapping[str, str]] = {
    "firing": "Attention",
    "again": "Attention",
    "resolved": "Good",
    "test": "Accent",
}


class Post(NamedTuple):
    """A request: JSON to a URL."""

    url: str
    body: bytes


def posts_of(notice: AlertNotice, channel: Channel) -> list[Post]:
    """Build the requests of a notice for a channel other than mail, in order."""
    return _RECEIVERS[channel.kind](notice, channel.target)


def _webhook(notice: AlertNotice, url: str) -> list[Post]:
    return [Post(url, webhook_body(notice))]


def _alertmanager(notice: AlertNotice, url: str) -> list[Post]:
    return [Post(f"{url.rstrip('/')}/api/v2/alerts", alertmanager_body(notice))]


def _slack(notice: AlertNotice, url: str) -> list[Post]:
    host = urlsplit(url).hostname or ""
    is_discord = any(host == each or host.endswith(f".{each}") for each in _DISCORD_HOSTS)
    subject, *lines = _lines(notice, (_DISCORD if is_discord else _SLACK) - 2, lambda text: len(_escape(text)))
    return [_post(url, {"text": _escape("\n".join([f"*{subject}*", *lines]))})]


def _escape(text: str) -> str:
    """Escape text for Slack, so that no name mentions people or disguises a link."""
    for letter, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, written)
    # Mattermost and Discord notify people by an @ alone; a zero-width space prevents that.
    return text.replace("@", "@\u200b")


def _teams(notice: AlertNotice, url: str) -> list[Post]:
    subject, *lines = _lines(notice, _TEAMS, lambda text: len(msgspec.json.encode(text)))
    heading = {"weight": "Bolder", "size": "Medium", "color": _COLOURS[notice.changes[0].kind]}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [_block(subject, **heading), *map(_block, lines)],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return [_post(url, {"type": "message", "attachments": [attachment]})]


def _block(text: str, **looks: str) -> dict[str, Any]:
    # A TextBlock would interpret Markdown in the names of tasks.
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **looks}]}


def _pagerduty(notice: AlertNotice, url: str) -> list[Post]:
    parts = urlsplit(url)
    (key,) = parse_qs(parts.query)["routing_key"]
    enqueue = parts._replace(query="").geturl()
    # A test is an incident that is resolved at once.
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
    text = "\n".join(_lines(notice, _TELEGRAM, lambda text: len(text.encode("utf-16-le")) // 2))
    return [_post(send, {"chat_id": chat, "text": text, "link_preview_options": {"is_disabled": True}})]


def _lines(notice: AlertNotice, most: int, size: Callable[[str], int]) -> list[str]:
    """Return the subject, as many changes as fit, the number of the others, and the note.

    Args:
        most, size: most size of all together, and the receiver's measure of it.
    """
    rule = notice.rule
    subject = _cut(subject_line(notice), most // 5, size)
    note = [_cut(rule.note, most // 3, size)] if rule.note else []
    shown = [_cut(line_of(rule, change), most // 4, size) for change in notice.changes[:_CHANGES]]
    while True:
        rest = len(notice.changes) - len(shown)
        lines = [subject, *shown, *([f"and {rest} more"] if rest else []), *note]
        if len(shown) <= 1 or size("\n".join(lines)) <= most:
            return lines
        shown.pop()


def _cut(text: str, most: int, size: Callable[[str], int]) -> str:
    """Shorten a text to the given size."""
    if size(text) <= most:
        return text
    return text[: bisect_right(range(len(text)), most - size("…"), key=lambda end: size(text[:end])) - 1] + "…"


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
