"""Examples for schedules and reactions."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_SCHEDULE: Final[dict[str, Any]] = {
    "name": "nightly",
    "tenant": "",
    "starts": "shop.report",
    "rule": "at 02:00 every day, UTC",
    "tz": "UTC",
    "is_dynamic": False,
    "next": "2027-01-31T02:00:00.000Z",
    "paused": None,
    "note": "",
    "task": "shop.report",
    "cron": "0 2 * * *",
    "every": None,
    "at": None,
    "start": None,
    "end": None,
    "catchup": "once",
    "late_after": 30.0,
    "catchup_window": 86400.0,
    "catchup_limit": 100,
    "catchup_rate": 10,
    "overlap": "skip",
    "max_concurrency": 1,
    "on_resume": "skip",
    "jitter": 0.0,
    "args": [],
    "kwargs": {"month": "2027-01"},
}
_SCHEDULE_STATUS: Final[dict[str, Any]] = {
    **_SCHEDULE,
    "fired": 30,
    "late": 0,
    "missed": 0,
    "coalesced": 0,
    "skipped": 0,
    "failed": 0,
    "waiting": 0,
    "active": [],
    "history": [{"scheduled_for": "2027-01-30T02:00:00.000Z", "emitted": "2027-01-30T02:00:00.004Z", "kind": "due"}],
}
_REACTION: Final[dict[str, Any]] = {
    "name": "shop.publish",
    "starts": "shop.publish",
    "rule": "when a job of shop.load has succeeded and a message go has arrived over amq.topic",
    "when": {
        "kind": "all_of",
        "parts": [
            {"kind": "job", "tasks": ["shop.load"], "states": ["succeeded"]},
            {"kind": "message", "patterns": ["go"], "exchange": "amq.topic"},
        ],
    },
    "debounce": 0.0,
    "limit": None,
    "at_limit": "drop",
    "is_dynamic": False,
    "seen_by": "beat",
    "queues": ["taskmq.on.shop.shop.publish.1"],
}
_LOADED: Final = {
    "kind": "job",
    "job_id": SOME_ID,
    "task": "shop.load",
    "state": "succeeded",
    "finished": "2027-01-30T17:12:01.250000Z",
}
_OF_SCHEDULE: Final = {"name": "nightly"}

SCHEDULES: Final[Mapping[str, Example]] = {
    "listSchedules": Example(answers={200: {"items": [_SCHEDULE], "next": None}}),
    "getSchedule": Example(parameters=_OF_SCHEDULE, answers={200: _SCHEDULE_STATUS}),
    "listReactions": Example(answers={200: {"items": [_REACTION], "next": None}}),
    "getReaction": Example(
        parameters={"name": "shop.publish"},
        answers={
            200: {
                **_REACTION,
                "conditions": [
                    {"condition": "a job of shop.load has succeeded", "is_met": True, "event": _LOADED},
                    {"condition": "a message go has arrived over amq.topic", "is_met": False, "event": None},
                ],
                "waiting": 0,
                "fired": 30,
                "failed": 0,
                "dropped": 0,
                "last": "2027-01-29T17:12:01.250Z",
            }
        },
    ),
    "putReaction": Example(
        parameters={"name": "clean-up"},
        body={"task": "shop.tidy", "when": {"kind": "job", "tasks": ["shop.load"], "states": ["failed"]}},
        answers={
            201: {
                "name": "clean-up",
                "starts": "shop.tidy",
                "rule": "when a job of shop.load has failed",
                "when": {"kind": "job", "tasks": ["shop.load"], "states": ["failed"]},
                "debounce": 0.0,
                "limit": None,
                "at_limit": "drop",
                "is_dynamic": True,
                "seen_by": "scheduler",
                "queues": [],
                "conditions": [{"condition": "a job of shop.load has failed", "is_met": False, "event": None}],
                "waiting": None,
                "fired": None,
                "failed": None,
                "dropped": None,
                "last": None,
            }
        },
    ),
    "removeReaction": Example(
        parameters={"name": "clean-up"}, answers={200: {"status": "removed", "name": "clean-up"}}
    ),
    "putSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"task": "report", "cron": "0 2 * * *", "tz": "Europe/Berlin", "catchup": "once", "overlap": "skip"},
        answers={201: {**_SCHEDULE_STATUS, "tenant": "acme", "is_dynamic": True, "fired": 0, "history": []}},
    ),
    "changeSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"cron": "45 2 * * *", "catchup": "all"},
        answers={
            200: {
                **_SCHEDULE_STATUS,
                "rule": "at 02:45 every day, UTC",
                "cron": "45 2 * * *",
                "catchup": "all",
                "is_dynamic": True,
            }
        },
    ),
    "removeSchedule": Example(parameters=_OF_SCHEDULE, answers={200: {"status": "removed", "name": "nightly"}}),
    "getNextOccurrences": Example(
        parameters=_OF_SCHEDULE, answers={200: {"items": ["2027-01-31T02:00:00.000Z", "2027-02-01T02:00:00.000Z"]}}
    ),
    "explainSchedule": Example(
        parameters={"name": "nightly"},
        answers={
            200: {
                "name": "nightly",
                "starts": "shop.report",
                "means": "at 02:00 every day, Europe/Berlin",
                "clock_changes": "a time that does not exist is due right after the gap; a time that comes twice is "
                "due the first time only",
                "next": ["2027-01-31 02:00:00+01:00"],
                "paused": None,
                "note": "",
            }
        },
    ),
    "explainRule": Example(
        body={"cron": "30 2 * * *", "tz": "Europe/Berlin"},
        answers={
            200: {
                "means": "at 02:30 every day, Europe/Berlin time",
                "clock_changes": "a time that does not exist is due right after the gap; a time that comes twice is "
                "due the first time only",
                "next": ["2027-01-31 02:30:00+01:00"],
            }
        },
    ),
    "pauseSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"note": "inventory"},
        answers={200: {**_SCHEDULE_STATUS, "next": None, "paused": "2027-01-30T17:12:01.250Z", "note": "inventory"}},
    ),
    "resumeSchedule": Example(parameters=_OF_SCHEDULE, answers={200: _SCHEDULE_STATUS}),
    "runSchedule": Example(parameters=_OF_SCHEDULE, answers={201: {"status": "submitted", "job_id": SOME_ID}}),
    "backfillSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"start": "2027-01-01T00:00:00Z", "end": "2027-01-03T00:00:00Z", "dry_run": True},
        answers={
            200: {
                "run": "",
                "instants": ["2027-01-01T02:00:00.000Z", "2027-01-02T02:00:00.000Z"],
                "has_more": False,
            }
        },
    ),
}
