"""Examples for queues, dead letters and workers."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_LINE: Final[dict[str, Any]] = {
    "queue": "images",
    "ready": 12,
    "in_hand": 4,
    "delayed": 0,
    "consumers": 2,
    "is_paused": False,
    "paused": None,
}
_FLOW: Final[dict[str, Any]] = {
    "entered": 9.8,
    "left": 7.1,
    "empty_in": None,
    "advice": "grows by 162 jobs a minute: add 1 worker",
}
_QUEUE: Final[dict[str, Any]] = {
    "queue": "images",
    "kind": "quorum",
    "priorities": "classes",
    "ordered": None,
    "lanes": None,
    "max_length": None,
    "max_bytes": None,
    "delivery_limit": None,
    "ready": 12,
    "in_hand": 4,
    "delayed": 3,
    "dead": 1,
    "stored": 3400,
    "is_exact": True,
    "oldest": "2027-01-30T17:12:01.250Z",
    **_FLOW,
    "more_workers": [{"workers": 1, "empty_in": 4014.1}, {"workers": 2, "empty_in": 775.5}],
    "by_tenant": [{"name": "globex", "jobs": 3_100}, {"name": "acme", "jobs": 300}],
    "by_priority": [{"name": "9", "jobs": 12}, {"name": "4", "jobs": 3_388}],
    "tenants": 2,
    "consumers": 2,
    "paused": None,
    "tasks": ["shop.resize"],
    "workers": ["web-1"],
    "parts": [_LINE],
}
_LETTER: Final[dict[str, Any]] = {
    "letter_of": "images",
    "job_id": SOME_ID,
    "task": "shop.resize",
    "tenant": "acme",
    "queue": "images",
    "attempt": 5,
    "reason": "error",
    "error_type": "OSError",
    "error": "OSError: no space left on device",
    "traceback": "",
    "fingerprint": "8c1d0e2f3a4b5c6d",
    "enqueued": "2027-01-30T17:12:01.250Z",
    "started": "2027-01-30T17:19:59.000Z",
    "died": "2027-01-30T17:20:00.000Z",
    "worker": "web-1",
    "starts": None,
    "replayed": 0,
    "body": None,
}

_WORKER: Final[dict[str, Any]] = {
    "name": "web-1",
    "host": "web",
    "pid": 4711,
    "version": "0.3.0",
    "queues": ["images"],
    "paused": [],
    "state": "running",
    "slots": 10,
    "running": 1,
    "backlog": 0,
    "memory": 61_000_000,
    "cpu": 0.41,
    "started": "2027-01-30T17:12:01.250Z",
    "jobs": [
        {
            "job_id": SOME_ID,
            "task": "shop.resize",
            "queue": "images",
            "attempt": 1,
            "seconds": 0.8,
        }
    ],
    "app": "shop",
    "app_version": "2027.01.30-1",
    "in_hand": {"images": 1},
    "ended": 812,
    "abandoned": 0,
    "unsettled": 0,
    "descriptors": 24,
    "loop_lag": 0.002,
    "node": None,
    "clock_offset": 0.001,
}

QUEUES: Final[Mapping[str, Example]] = {
    "listQueues": Example(
        answers={
            200: {
                "items": [_LINE],
                "delayed": 3,
                "queues": [
                    {
                        "queue": "images",
                        "ready": 12,
                        "in_hand": 4,
                        "delayed": 0,
                        "consumers": 2,
                        "is_paused": False,
                        "dead": 1,
                        "stored": 3400,
                        "is_exact": True,
                        "oldest": "2027-01-30T17:12:01.250Z",
                        **_FLOW,
                        "parts": ["images", "images.dlq"],
                    }
                ],
            }
        }
    ),
    "getQueue": Example(parameters={"name": "images"}, answers={200: _QUEUE}),
    "getDemand": Example(
        parameters={"name": "images"},
        answers={
            200: {
                "queue": "images",
                "demand": 3416,
                "stored": 3400,
                "is_exact": True,
                "ready": 12,
                "in_hand": 4,
                "oldest": "2027-01-30T17:12:01.250Z",
            }
        },
    ),
    "pauseQueue": Example(
        parameters={"name": "images"},
        body={"note": "the disk is full"},
        answers={200: {"since": "2027-01-30T17:12:01.250Z", "note": "the disk is full", "by": "ann"}},
    ),
    "resumeQueue": Example(parameters={"name": "images"}, answers={200: {"was_paused": True}}),
    "moveMessages": Example(
        parameters={"name": "images"},
        body={"name": "images", "to": "photos", "count": 500},
        answers={200: {"moved": 12, "stayed": 0}},
    ),
    "purgeQueue": Example(parameters={"name": "images"}, body={"name": "images"}, answers={200: {"purged": 12}}),
    "listDeadLetterQueues": Example(answers={200: {"items": ["images"]}}),
    "listDeadLetters": Example(parameters={"queue": "images"}, answers={200: {"items": [_LETTER]}}),
    "groupDeadLetters": Example(
        parameters={"queue": "images"},
        answers={
            200: {
                "items": [
                    {
                        "letter_of": "images",
                        "fingerprint": "8c1d0e2f3a4b5c6d",
                        "count": 40,
                        "jobs": 40,
                        "tenants": ["acme"],
                        "task": "shop.resize",
                        "reason": "error",
                        "error_type": "OSError",
                        "error": "OSError: no space left on device",
                        "first": "2027-01-30T17:12:01.250Z",
                        "last": "2027-01-30T18:00:00.000Z",
                        "sample": SOME_ID,
                    }
                ]
            }
        },
    ),
    "replayDeadLetters": Example(
        parameters={"queue": "images"},
        body={"error": "OSError", "limit": 50},
        answers={200: {"replayed": 40, "dropped": 0, "too_often": 0, "no_destination": 0}},
    ),
    "purgeDeadLetters": Example(
        parameters={"queue": "images"},
        body={"name": "images", "fingerprint": "8c1d"},
        answers={200: {"purged": 40}},
    ),
    "listWorkers": Example(answers={200: {"items": [_WORKER]}}),
    "controlWorkers": Example(
        body={"command": "concurrency", "workers": ["web-1"], "number": 20},
        answers={
            200: {
                "items": [
                    {
                        "worker": "web-1",
                        "verdict": "done",
                        "detail": "20 slots, 10 before",
                        "text": "",
                        "status": {**_WORKER, "slots": 20},
                    }
                ],
                "missing": [],
            }
        },
    ),
}
