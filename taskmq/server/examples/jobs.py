"""Examples for jobs."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_JOB: Final[dict[str, Any]] = {
    "job_id": "order-17",
    "id": SOME_ID,
    "status": "queued",
    "state": "scheduled",
    "job_type": "data_processing",
    "task": "data_processing",
    "queue": "default",
    "priority": 8,
    "tenant": "acme",
    "schedule_time": "2027-01-31T09:00:00.000Z",
    "due_at": "2027-01-31T09:00:00.000Z",
    "start_time": None,
    "end_time": None,
    "submitted_at": "2027-01-30T17:12:01.250Z",
    "expires_at": None,
    "retries": 0,
    "attempt": 1,
    "version": 1,
    "worker": "",
    "cancel_requested": None,
    "error": None,
    "description": "",
    "owner": "ann",
    "labels": {"team": "web"},
    "retry_of": "",
    "retried_as": "",
    "depends_on": [],
}
_RUNNING: Final[dict[str, Any]] = {
    **_JOB,
    "status": "running",
    "state": "running",
    "schedule_time": "2027-01-30T17:12:01.250Z",
    "due_at": "2027-01-30T17:12:01.250Z",
    "start_time": "2027-01-30T17:12:01.500Z",
    "worker": "web-1:4711",
    "progress": {
        "done": 3,
        "total": 10,
        "note": "printing pages",
        "attempt": 1,
        "updated_at": "2027-01-30T17:12:09.500Z",
        "state": "running",
    },
}
_CHANGED: Final[dict[str, Any]] = {
    "status": "updated",
    "job_id": "order-17",
    "id": SOME_ID,
    "state": "scheduled",
    "version": 2,
}
_OF_JOB: Final = {"job_id": "order-17"}

JOBS: Final[Mapping[str, Example]] = {
    "submitJobs": Example(
        body={
            "job_id": "order-17",
            "job_type": "data_processing",
            "schedule_time": "2027-01-31T09:00:00Z",
            "priority": "high",
            "payload": {"key": "value"},
            "depends_on": ["order-16", {"job_id": "order-15", "condition": "ended"}],
        },
        answers={
            201: {
                "status": "submitted",
                "job_id": "order-17",
                "id": SOME_ID,
                "state": "scheduled",
                "version": 1,
                "is_new": True,
                "task": "data_processing",
                "queue": "data",
            }
        },
    ),
    "listJobs": Example(
        parameters={"filter": "task:data_processing created:>-24h", "limit": 50, "expand": "progress"},
        answers={200: [_RUNNING]},
    ),
    "countJobs": Example(parameters={"filter": "status:failed"}, answers={200: {"count": 3, "is_exact": True}}),
    "getJobHistogram": Example(
        parameters={"filter": "task:billing.*", "bars": 2},
        answers={
            200: {
                "since": "2027-01-30T10:00:00.000Z",
                "until": "2027-01-31T10:00:00.000Z",
                "seconds": 43200.0,
                "items": [
                    {"at": "2027-01-30T10:00:00.000Z", "counts": {"succeeded": 40, "failed": 2}, "is_exact": True},
                    {"at": "2027-01-30T22:00:00.000Z", "counts": {"succeeded": 30, "running": 1}, "is_exact": True},
                ],
            }
        },
    ),
    "countJobsOfFilters": Example(
        parameters={"filter": "status:failed", "max_age": 1},
        answers={200: {"items": [{"filter": "status:failed", "count": 3, "is_exact": True}]}},
    ),
    "getJob": Example(
        parameters={**_OF_JOB, "expand": "options"},
        answers={
            200: {
                **_JOB,
                "options": {
                    "timeout": 90.0,
                    "max_attempts": 3,
                    "retry": {"backoff": "constant", "base": 10.0},
                    "resources": {"cpu": 2.0},
                    "place": {
                        "labels": {"zone": "a"},
                        "prefers": {"disk": "ssd"},
                        "patience": 30.0,
                        "gang": ["render", 8],
                    },
                    "preemptible": True,
                },
            }
        },
    ),
    "getJobHistory": Example(
        parameters=_OF_JOB,
        answers={
            200: {
                "items": [
                    {
                        "version": 2,
                        "at": "2027-01-30T17:15:00.000Z",
                        "kind": "change",
                        "state": "scheduled",
                        "by": "ann",
                        "note": "due",
                    }
                ]
            }
        },
    ),
    "getJobAttempts": Example(
        parameters=_OF_JOB,
        answers={
            200: {
                "items": [
                    {
                        "attempt": 1,
                        "state": "failed",
                        "started": "2027-01-31T09:00:00.120Z",
                        "ended": "2027-01-31T09:00:01.000Z",
                        "worker": "web-1",
                        "app_version": "2027.01.30-1",
                        "processor_seconds": 0.31,
                        "peak_memory": 73400320,
                        "error": {"type": "TimeoutError", "message": "no answer", "traceback": ""},
                    }
                ]
            }
        },
    ),
    "explainJob": Example(
        parameters=_OF_JOB,
        answers={
            200: {
                "state": "held",
                "answer": "it is held by an operator",
                "reasons": ["it is held by an operator"],
                "items": [
                    {
                        "kind": "held",
                        "text": "it is held by an operator",
                        "subject": "",
                        "since": "2027-01-30T17:12:01.250Z",
                    }
                ],
                "checks": [
                    {
                        "name": "hold",
                        "state": "blocking",
                        "text": "",
                        "kinds": ["held"],
                        "since": "2027-01-30T17:12:01.250Z",
                    },
                    {"name": "dependencies", "state": "pending", "text": "", "kinds": ["dependency"], "since": None},
                ],
                "start": None,
                "alternatives": [{"kind": "held", "text": "release it", "start": None}],
            }
        },
    ),
    "putJob": Example(
        parameters=_OF_JOB,
        body={"schedule_time": "2027-01-31T10:00:00Z", "priority": "low", "payload": {"key": "updated_value"}},
        answers={200: _CHANGED},
    ),
    "patchJob": Example(parameters=_OF_JOB, body={"priority": "low"}, answers={200: _CHANGED}),
    "cancelJob": Example(
        parameters=_OF_JOB,
        answers={
            200: {**_CHANGED, "status": "cancelled", "state": "cancelled"},
            202: {**_CHANGED, "status": "cancel_requested", "state": "running"},
        },
    ),
    "holdJob": Example(
        parameters=_OF_JOB,
        body={"note": "until friday"},
        answers={200: {**_CHANGED, "status": "held", "state": "held"}},
    ),
    "releaseJob": Example(parameters=_OF_JOB, body={"note": ""}, answers={200: {**_CHANGED, "status": "released"}}),
    "signalJob": Example(
        parameters=_OF_JOB,
        body={"signal": "approval", "value": {"ok": True}, "signal_id": "order-17"},
        answers={200: {"job_id": "order-17", "id": SOME_ID, "signal": "approval", "signal_id": "order-17"}},
    ),
    "retryJob": Example(
        parameters=_OF_JOB,
        body={"note": "the disk is free again"},
        answers={200: {**_CHANGED, "status": "retried", "state": "queued"}, 201: {**_CHANGED, "status": "retried"}},
    ),
    "cloneJob": Example(
        parameters=_OF_JOB,
        body={"job_id": "order-17-again", "payload": {"key": "updated_value"}},
        answers={201: {**_CHANGED, "status": "cloned"}},
    ),
    "createJobCompat": Example(
        body={"name": "data_processing", "description": "once a year", "parameters": {"key": "value"}},
        answers={201: {"job_id": SOME_ID, "name": "data_processing", "status": "created"}},
    ),
    "scheduleJobCompat": Example(
        body={"job_id": "order-17", "scheduled_time": "2027-01-31T09:00:00Z"},
        answers={200: {"job_id": "order-17", "scheduled_time": "2027-01-31T09:00:00.000Z", "status": "scheduled"}},
    ),
    "getJobStatusCompat": Example(parameters=_OF_JOB, answers={200: _JOB}),
}
