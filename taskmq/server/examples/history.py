"""Examples for logs, metrics, failures and alerts."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.model.history.alerts import METRICS
from taskmq.server.examples.example import SOME_ID, Example

_LINE: Final[dict[str, Any]] = {
    "number": 4711,
    "at": "2027-01-30T17:12:01.250Z",
    "level": "error",
    "logger": "shop.mail",
    "message": "the relay refuses ann@example.com",
    "id": SOME_ID,
    "attempt": 2,
    "worker": "web-1",
    "task": "data_processing",
    "queue": "default",
    "tenant": "acme",
    "log_time": "2027-01-30T17:12:01.250Z",
    "log_level": "ERROR",
    "log_message": "the relay refuses ann@example.com",
}
_LINES: Final = {200: {"items": [_LINE], "next": "4711", "is_bounded": False}}
_METRICS: Final[dict[int, Any]] = {
    200: {
        "items": [
            {
                "metric": "failure_rate",
                "labels": {"queue": "billing"},
                "points": [{"at": "2027-01-30T17:12:00.000Z", "value": 0.25}],
            }
        ],
        "step": 60,
        "versions": [
            {"version": "2027.01.30-1", "first": "2027-01-30T17:12:01.250Z", "last": "2027-01-30T18:40:00.000Z"}
        ],
    }
}
_TIME: Final = {"since": "2027-01-30T17:00:00Z", "until": "2027-01-30T18:00:00Z"}
_RULE_BODY: Final[dict[str, Any]] = {
    "metric": "failure_rate",
    "threshold": 0.1,
    "task": "billing.*",
    "queue": "",
    "workflow": "",
    "each": "task",
    "below": False,
    "clear": 0.05,
    "at_least": 20,
    "window": 300.0,
    "pending_for": 60.0,
    "clear_for": 60.0,
    "repeat": 14400.0,
    "severity": "critical",
    "channels": ["mailto:ops@example.com", "https://hooks.example.com/alerts"],
    "unless": [],
    "note": "see the billing runbook",
    "is_enabled": True,
}
_RULE: Final = {**_RULE_BODY, "name": "charges-fail", "tenant": "acme", "version": 1}
_OF_RULE: Final = {"name": "charges-fail"}
_OF_GROUP: Final = {"group_id": "0c1f2e3d4b5a"}
_SILENCE: Final[dict[str, Any]] = {
    "id": SOME_ID,
    "tenant": "acme",
    "rule": "charges-*",
    "subject": "",
    "begins": "2027-01-30T17:12:01.250Z",
    "ends": "2027-01-30T18:12:01.250Z",
    "by": "ann",
    "note": "planned maintenance of the bank",
}

HISTORY: Final[Mapping[str, Example]] = {
    "getJobLogs": Example(parameters={"job_id": "order-17", "level": "info"}, answers=_LINES),
    "downloadJobLogs": Example(
        parameters={"job_id": "order-17"},
        media_type="text/plain",
        answers={200: "2027-01-30T17:12:01.250Z ERROR    shop.mail: the relay refuses ann@example.com\n"},
    ),
    "searchLogs": Example(parameters={"text": "relay refuses", "level": "warning", **_TIME}, answers=_LINES),
    "queryLogsCompat": Example(
        parameters={"job_id": "order-17", "level": "ERROR", "start_time": _TIME["since"]}, answers=_LINES
    ),
    "getUsage": Example(
        answers={
            200: {
                "items": [
                    {
                        "day": "2027-01-30",
                        "tenant": "acme",
                        "task": "shop.resize",
                        "queue": "images",
                        "runs": 1_210,
                        "ended": 1_200,
                        "succeeded": 1_190,
                        "failed": 8,
                        "cancelled": 2,
                        "retried": 10,
                        "waiting_seconds": 310.5,
                        "running_seconds": 2_410.25,
                        "processor_seconds": 1_980.5,
                    }
                ]
            }
        }
    ),
    "listRollups": Example(
        parameters={**_TIME, "by": "task,queue"},
        answers={
            200: {
                "since": "2027-01-30T17:00:00.000Z",
                "until": "2027-01-30T18:00:00.000Z",
                "items": [
                    {
                        "task": "billing.charge",
                        "queue": "billing",
                        "tenant": "",
                        "outcomes": {"started": 410, "succeeded": 400, "retried": 6, "dead": 4},
                        "ended": 404,
                        "failed": 4,
                        "failure_rate": 0.0099,
                        "wait_p50": 0.0057,
                        "wait_p95": 0.0226,
                        "wait_p99": 0.0905,
                        "run_p50": 0.1281,
                        "run_p95": 0.3621,
                        "run_p99": 0.7241,
                        "run_total": 61.5,
                    }
                ],
            }
        },
    ),
    "queryMetrics": Example(
        parameters={"metric": "failure_rate", "step": 60, "by": "queue", **_TIME}, answers=_METRICS
    ),
    "getMetricsCompat": Example(parameters={"name": "failure_rate"}, answers=_METRICS),
    "listFailures": Example(
        parameters={"task": "billing.charge"},
        answers={
            200: {
                "items": [
                    {
                        "lane": "broker",
                        "job_id": SOME_ID,
                        "name": "",
                        "at": "2027-01-30T17:12:01.250Z",
                        "event": "dead",
                        "task": "billing.charge",
                        "queue": "billing",
                        "tenant": "acme",
                        "worker": "web-1",
                        "attempt": 5,
                        "seconds": 0.25,
                        "error": "ConnectionError",
                        "reason": "error",
                        "message": "no answer from bank.example.com",
                        "summary": "ConnectionError: no answer from bank.example.com",
                        "letter": "billing",
                        "remedy": "replay",
                        "is_handled": False,
                        "retried_as": "",
                        "traceback": None,
                    }
                ],
                "next": None,
                "missing": [],
            }
        },
    ),
    "listFailureGroups": Example(
        parameters={"state": "open"},
        answers={
            200: {
                "items": [
                    {
                        "id": "0c1f2e3d4b5a",
                        "tenant": "acme",
                        "task": "billing.charge",
                        "error": "ConnectionError",
                        "state": "open",
                        "failures": 42,
                        "before": 3,
                        "trend": [0] * 20 + [2, 12, 18, 10],
                        "first": "2027-01-29T08:12:01.250Z",
                        "last": "2027-01-30T17:12:01.250Z",
                        "message": "no answer from bank.example.com",
                        "is_new": False,
                        "first_version": "2027.01.29-2",
                        "is_back": True,
                        "until": None,
                        "marked_at": "2027-01-29T09:00:00.000Z",
                        "marked_by": "ann",
                        "note": "the bank has a new address",
                    }
                ],
                "since": "2027-01-29T18:00:00.000Z",
                "open": 1,
                "resolved": 0,
                "muted": 0,
                "is_complete": True,
            }
        },
    ),
    "resolveFailureGroup": Example(
        parameters=_OF_GROUP,
        body={"note": "fixed in 1.42.1"},
        answers={200: {"status": "resolved", "id": "0c1f2e3d4b5a"}},
    ),
    "muteFailureGroup": Example(
        parameters=_OF_GROUP,
        body={"seconds": 86400.0, "note": "the bank is down"},
        answers={200: {"status": "muted", "id": "0c1f2e3d4b5a"}},
    ),
    "reopenFailureGroup": Example(
        parameters=_OF_GROUP, body={"note": ""}, answers={200: {"status": "open", "id": "0c1f2e3d4b5a"}}
    ),
    "listAlerts": Example(
        parameters={"states": "firing"},
        answers={
            200: {
                "items": [
                    {
                        "tenant": "acme",
                        "rule": "charges-fail",
                        "subject": "task:billing.charge",
                        "state": "firing",
                        "severity": "critical",
                        "value": 0.4,
                        "since": "2027-01-30T17:12:00.000Z",
                        "changed": "2027-01-30T17:13:00.000Z",
                        "told_at": "2027-01-30T17:13:00.000Z",
                        "is_silenced": False,
                    }
                ],
                "firing": 1,
                "pending": 0,
            }
        },
    ),
    "listAlertMetrics": Example(answers={200: {"items": dict(METRICS)}}),
    "listAlertRules": Example(answers={200: {"items": [_RULE]}}),
    "putAlertRule": Example(parameters=_OF_RULE, body=_RULE_BODY, answers={200: _RULE}),
    "deleteAlertRule": Example(parameters=_OF_RULE, answers={200: {"status": "deleted", **_OF_RULE}}),
    "testAlertRule": Example(parameters=_OF_RULE, answers={202: {"channels": _RULE_BODY["channels"]}}),
    "listSilences": Example(answers={200: {"items": [_SILENCE]}}),
    "addSilence": Example(
        body={"seconds": 3600, "rule": "charges-*", "note": "planned maintenance of the bank"},
        answers={201: _SILENCE},
    ),
    "deleteSilence": Example(parameters={"silence_id": SOME_ID}, answers={200: {"status": "ended", "id": SOME_ID}}),
    "listAlertNotices": Example(
        answers={
            200: {
                "items": [
                    {
                        "id": "5f1c0f0e2d9a4b7c",
                        "at": "2027-01-30T17:13:00.000Z",
                        "rule": "charges-fail",
                        "tenant": "acme",
                        "channel": "mailto:ops@example.com",
                        "changes": [{"kind": "firing", "subject": "task:billing.charge"}],
                        "state": "done",
                        "tries": 1,
                    }
                ]
            }
        }
    ),
    "setUpAlertCompat": Example(body={"name": "charges-fail", **_RULE_BODY}, answers={200: _RULE}),
}
