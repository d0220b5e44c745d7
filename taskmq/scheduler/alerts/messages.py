"""Messages of alerts: text, the JSON of webhooks with its signature, and Alertmanager's format."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.history import AlertNotice
from taskmq.model.history.alerts import METRICS, AlertChange, AlertRule
from taskmq.model.units import to_datetime

_WORDS: Final = {"firing": "FIRING", "again": "STILL FIRING", "resolved": "RESOLVED", "test": "TEST"}

ALERTMANAGER_MS: Final = 300_000
"""Time for which an Alertmanager keeps an alert that is not repeated; firing ones are repeated each minute."""


def notice_id(rule: AlertRule, channel: str, changes: Sequence[AlertChange]) -> str:
    """Derive the id of a notice from its content and receiver, so that equal notices have equal ids."""
    content = [
        # `number` restarts if a rule is created again; `since` distinguishes its alerts from earlier ones.
        (
            each.kind,
            each.alert.subject,
            each.alert.number,
            each.alert.since,
            each.alert.told if each.kind == "again" else 0,
        )
        for each in changes
    ]
    digest = hashlib.sha256(msgspec.json.encode([rule.tenant, rule.name, channel, content]))
    return digest.hexdigest()[:32]


def subject_line(notice: AlertNotice) -> str:
    """Summarize a notice in one line, even if names of tasks contain line breaks."""
    words = {_WORDS[change.kind] for change in notice.changes}
    subjects = ", ".join(change.alert.subject for change in notice.changes if change.alert.subject)
    about = f": {subjects}" if subjects else ""
    return " ".join(f"[{'/'.join(sorted(words))}] {notice.rule.name}{about}".split())[:200]


def webhook_body(notice: AlertNotice) -> bytes:
    """Encode a notice as JSON for a webhook."""
    rule = notice.rule
    return msgspec.json.encode(
        {
            "id": notice.id,
            "rule": rule.name,
            "tenant": rule.tenant,
            "metric": rule.metric,
            "threshold": rule.threshold,
            "severity": rule.severity,
            "note": rule.note,
            "changes": [
                {
                    "kind": change.kind,
                    "subject": change.alert.subject,
                    "state": change.alert.state.value,
                    "value": change.alert.value,
                    "since": _instant(change.alert.since),
                }
                for change in notice.changes
            ],
            "at": _instant(notice.at),
        }
    )


def signature(secret: str, body: bytes, *, at: int) -> str:
    """Sign a body as `t=SECONDS,v1=HEX`, the HMAC-SHA256 of `SECONDS.BODY`."""
    digest = hmac.new(secret.encode(), b"%d.%s" % (at, body), hashlib.sha256)
    return f"t={at},v1={digest.hexdigest()}"


def alertmanager_body(notice: AlertNotice) -> bytes:
    """Encode a notice for Alertmanager's `/api/v2/alerts`."""
    return msgspec.json.encode([_alert(notice, change) for change in notice.changes])


def _alert(notice: AlertNotice, change: AlertChange) -> dict[str, Any]:
    rule, alert = notice.rule, change.alert
    # Alertmanager ignores an alert that has already ended, so a test lasts for a while as well.
    lasts = 0 if change.kind == "resolved" else ALERTMANAGER_MS
    return {
        "labels": {
            "alertname": rule.name,
            "severity": rule.severity,
            "subject": alert.subject,
            "tenant": alert.tenant,
        },
        "annotations": {
            "summary": line_of(rule, change),
            "description": rule.note,
        },
        "startsAt": _instant(min(alert.since, notice.at)),
        "endsAt": _instant(notice.at + lasts),
    }


def line_of(rule: AlertRule, change: AlertChange) -> str:
    """Describe a change in one line for people."""
    alert = change.alert
    compared = "below" if rule.below else "above"
    return (
        f"{_WORDS[change.kind]} {alert.subject or 'everything'}: {rule.metric} is {alert.value:.4g} "
        f"({compared} {rule.threshold:g} is too {'little' if rule.below else 'much'}; {METRICS[rule.metric]}), "
        f"since {_instant(alert.since)}"
    )


def _instant(ms: int) -> str:
    return to_datetime(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
