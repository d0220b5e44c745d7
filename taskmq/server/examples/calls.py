"""Examples for the calls of accounts, jobs and nouns."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import Example

__all__ = ["CALLS"]


_ID: Final = "0193a1f2-7c1e-7abc-8def-0123456789ab"
_JOB: Final[dict[str, Any]] = {
    "job_id": "order-17",
    "id": _ID,
    "status": "queued",
    "state": "scheduled",
    "job_type": "data_processing",
    "task": "data_processing",
    "queue": "default",
    "priority": 8,
    "tenant": "acme",
    "schedule_time": "2027-01-31T09:00:00.000Z",
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
    "depends_on": [],
}
_CHANGED: Final[dict[str, Any]] = {
    "status": "updated",
    "job_id": "order-17",
    "id": _ID,
    "state": "scheduled",
    "version": 2,
}
_OF_JOB: Final = {"job_id": "order-17"}
_POOL: Final[dict[str, Any]] = {"pool": "acme", "parent": None, "weight": 5.0, "min": {}, "max": {"slots": 8.0}}
_QUOTA: Final[dict[str, Any]] = {
    "tenant": "acme",
    "user": None,
    "queued": None,
    "a_day": 10000,
    "bytes": None,
    "rate": 5.0,
    "burst": 100,
    "jobs_today": 412,
    "bytes_today": 65920,
}
_QUEUE: Final[dict[str, Any]] = {
    "queue": "images",
    "kind": "quorum",
    "ready": 12,
    "in_hand": 4,
    "delayed": 3,
    "dead": 1,
    "consumers": 2,
    "paused": None,
    "tasks": ["shop.resize"],
    "workers": ["web-1"],
}
_LETTER: Final[dict[str, Any]] = {
    "job_id": _ID,
    "task": "shop.resize",
    "queue": "images",
    "attempt": 5,
    "reason": "error",
    "error_type": "OSError",
    "error": "OSError: no space left on device",
    "traceback": "",
    "fingerprint": "8c1d0e2f3a4b5c6d",
    "enqueued": "2027-01-30T17:12:01.250Z",
    "died": "2027-01-30T17:20:00.000Z",
    "worker": "web-1",
    "replayed": 0,
}
_SCHEDULE: Final[dict[str, Any]] = {
    "name": "nightly",
    "tenant": "",
    "starts": "shop.report",
    "rule": "at 02:00 UTC",
    "is_dynamic": False,
    "next": "2027-01-31T02:00:00.000Z",
    "paused": None,
    "note": "",
}
_SCHEDULE_STATUS: Final[dict[str, Any]] = {
    **_SCHEDULE,
    "fired": 30,
    "late": 0,
    "missed": 0,
    "skipped": 0,
    "failed": 0,
    "waiting": 0,
    "active": [],
    "history": [{"scheduled_for": "2027-01-30T02:00:00.000Z", "emitted": "2027-01-30T02:00:00.004Z", "kind": "due"}],
}
_TOKEN: Final[dict[str, Any]] = {
    "id": _ID,
    "name": "nightly-import",
    "scopes": ["jobs.read", "jobs.submit"],
    "tenants": None,
    "tasks": ["billing.*"],
    "created": "2027-01-30T17:12:01.250Z",
    "expires_at": None,
    "last_used": None,
}
_USER: Final[dict[str, Any]] = {
    "id": _ID,
    "name": "ann",
    "email": "",
    "created": "2027-01-30T17:12:01.250Z",
    "version": 1,
    "disabled": None,
    "has_password": True,
    "last_login": None,
    "memberships": [{"tenant": "acme", "role": "operator", "tasks": ["*"]}],
}
_TENANT: Final[dict[str, Any]] = {
    "name": "acme",
    "description": "ACME Ltd",
    "created": "2027-01-30T17:12:01.250Z",
    "disabled": None,
}
_OF_SCHEDULE: Final = {"name": "nightly"}
_OF_FLOW: Final = {"workflow_id": _ID}
_TASK: Final[dict[str, Any]] = {
    "name": "shop.resize",
    "queue": "images",
    "description": "Make a photo fit a frame.",
    "is_own": True,
    "positional": ["photo"],
    "arguments": {"type": "object", "properties": {"photo": {"type": "integer"}}, "required": ["photo"]},
}
_DEFINITION: Final[dict[str, Any]] = {
    "name": "monthly",
    "tenant": "acme",
    "version": 1,
    "at": "2027-01-30T17:12:01.250Z",
    "by": "ann",
    "task": "data_processing",
    "args": [],
    "kwargs": {"key": "value"},
    "queue": "",
    "priority": 1,
    "expires_in": None,
    "description": "",
    "labels": {},
}

CALLS: Final[Mapping[str, Example]] = {
    "getLiveness": Example(answers={200: {"status": "live", "store": None}}),
    "getReadiness": Example(answers={200: {"status": "ready", "store": True}}),
    "getOpenApi": Example(answers={200: {"openapi": "3.1.0"}}),
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
                "id": _ID,
                "state": "scheduled",
                "version": 1,
                "is_new": True,
            }
        },
    ),
    "listJobs": Example(
        parameters={"filter": "task:data_processing created:>-24h", "limit": 50}, answers={200: [_JOB]}
    ),
    "countJobs": Example(parameters={"filter": "status:failed"}, answers={200: {"count": 3, "is_exact": True}}),
    "getJob": Example(parameters=_OF_JOB, answers={200: _JOB}),
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
                        "started": "2027-01-31T09:00:00.120Z",
                        "ended": "2027-01-31T09:00:01.000Z",
                        "worker": "web-1",
                        "error": {"type": "TimeoutError", "message": "no answer", "traceback": ""},
                    }
                ]
            }
        },
    ),
    "explainJob": Example(
        parameters=_OF_JOB,
        answers={200: {"state": "held", "reasons": ["an operator holds it: release it"]}},
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
    "retryJob": Example(
        parameters=_OF_JOB,
        body={"note": "the disk is free again"},
        answers={200: {**_CHANGED, "status": "retried", "state": "queued"}, 201: {**_CHANGED, "status": "retried"}},
    ),
    "cloneJob": Example(
        parameters=_OF_JOB, body={"job_id": "order-17-again"}, answers={201: {**_CHANGED, "status": "cloned"}}
    ),
    "listQueues": Example(
        answers={
            200: {
                "items": [{"queue": "images", "ready": 12, "in_hand": 4, "consumers": 2, "is_paused": False}],
                "delayed": 3,
            }
        }
    ),
    "getQueue": Example(parameters={"name": "images"}, answers={200: _QUEUE}),
    "pauseQueue": Example(
        parameters={"name": "images"},
        body={"note": "the disk is full"},
        answers={200: {"since": "2027-01-30T17:12:01.250Z", "note": "the disk is full"}},
    ),
    "resumeQueue": Example(parameters={"name": "images"}, answers={200: {"was_paused": True}}),
    "purgeQueue": Example(parameters={"name": "images"}, body={"name": "images"}, answers={200: {"purged": 12}}),
    "listPools": Example(
        answers={
            200: {
                "version": 3,
                "items": [_POOL],
                "policies": [{"queue": "reports", "policy": "weighted", "strict": False}],
            }
        }
    ),
    "getPool": Example(parameters={"name": "acme"}, answers={200: _POOL}),
    "putPool": Example(
        parameters={"name": "acme"}, body={"weight": 5.0, "max": {"slots": 8.0}}, answers={200: _POOL}
    ),
    "removePool": Example(parameters={"name": "acme"}, answers={200: {"status": "removed"}}),
    "putQueuePolicy": Example(
        parameters={"name": "reports"},
        body={"policy": "weighted"},
        answers={200: {"queue": "reports", "policy": "weighted", "strict": False}},
    ),
    "removeQueuePolicy": Example(parameters={"name": "reports"}, answers={200: {"status": "removed"}}),
    "listQuotas": Example(answers={200: {"items": [_QUOTA]}}),
    "putQuota": Example(
        parameters={"name": "acme"},
        body={"a_day": 10000, "rate": 5.0, "burst": 100},
        answers={200: _QUOTA},
    ),
    "removeQuota": Example(parameters={"name": "acme"}, answers={200: {"status": "removed"}}),
    "listDeadLetterQueues": Example(answers={200: {"items": ["images"]}}),
    "listDeadLetters": Example(parameters={"queue": "images"}, answers={200: {"items": [_LETTER]}}),
    "groupDeadLetters": Example(
        parameters={"queue": "images"},
        answers={
            200: {
                "items": [
                    {
                        "fingerprint": "8c1d0e2f3a4b5c6d",
                        "count": 40,
                        "jobs": 40,
                        "task": "shop.resize",
                        "reason": "error",
                        "error_type": "OSError",
                        "error": "OSError: no space left on device",
                        "first": "2027-01-30T17:12:01.250Z",
                        "last": "2027-01-30T18:00:00.000Z",
                        "sample": _ID,
                    }
                ]
            }
        },
    ),
    "replayDeadLetters": Example(
        parameters={"queue": "images"},
        body={"error": "OSError", "rate": 50},
        answers={200: {"replayed": 40, "dropped": 0, "too_often": 0, "no_destination": 0}},
    ),
    "purgeDeadLetters": Example(
        parameters={"queue": "images"},
        body={"name": "images", "fingerprint": "8c1d"},
        answers={200: {"purged": 40}},
    ),
    "listWorkers": Example(
        answers={
            200: {
                "items": [
                    {
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
                        "started": "2027-01-30T17:12:01.250Z",
                        "jobs": [
                            {"job_id": _ID, "task": "shop.resize", "queue": "images", "attempt": 1, "seconds": 0.8}
                        ],
                    }
                ]
            }
        }
    ),
    "listSchedules": Example(answers={200: {"items": [_SCHEDULE]}}),
    "getSchedule": Example(parameters=_OF_SCHEDULE, answers={200: _SCHEDULE_STATUS}),
    "putSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"task": "report", "cron": "0 2 * * *", "tz": "Europe/Berlin", "catchup": "once", "overlap": "skip"},
        answers={201: {**_SCHEDULE_STATUS, "tenant": "acme", "is_dynamic": True, "fired": 0, "history": []}},
    ),
    "removeSchedule": Example(parameters=_OF_SCHEDULE, answers={200: {"status": "removed", "name": "nightly"}}),
    "getNextOccurrences": Example(
        parameters=_OF_SCHEDULE, answers={200: {"items": ["2027-01-31T02:00:00.000Z", "2027-02-01T02:00:00.000Z"]}}
    ),
    "pauseSchedule": Example(
        parameters=_OF_SCHEDULE,
        body={"note": "inventory"},
        answers={200: {**_SCHEDULE_STATUS, "next": None, "paused": "2027-01-30T17:12:01.250Z", "note": "inventory"}},
    ),
    "resumeSchedule": Example(parameters=_OF_SCHEDULE, answers={200: _SCHEDULE_STATUS}),
    "runSchedule": Example(parameters=_OF_SCHEDULE, answers={201: {"status": "submitted", "job_id": _ID}}),
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
    "listWorkflows": Example(
        parameters={"name": "shop.*", "states": "running,failed"},
        answers={
            200: {
                "items": [
                    {
                        "workflow_id": _ID,
                        "name": "shop.resize",
                        "tenant": "acme",
                        "state": "running",
                        "cancelled": None,
                        "started": "2027-01-30T17:12:01.250Z",
                        "nodes": 12,
                        "unfinished": 5,
                    }
                ],
                "next": None,
                "is_bounded": False,
            }
        },
    ),
    "getWorkflow": Example(
        parameters=_OF_FLOW,
        answers={
            200: {
                "workflow_id": _ID,
                "tenant": "acme",
                "state": "running",
                "cancelled": None,
                "steps": [
                    {"step": "resize", "task": "shop.resize", "state": "succeeded", "attempts": 1, "error": None}
                ],
            }
        },
    ),
    "cancelWorkflow": Example(
        parameters=_OF_FLOW,
        body={"reason": "ordered twice"},
        answers={200: {"status": "cancelled", "workflow_id": _ID}},
    ),
    "redriveWorkflow": Example(parameters=_OF_FLOW, answers={200: {"steps": 3, "letters": 1}}),
    "listTasks": Example(answers={200: {"items": [_TASK], "next": None}}),
    "getTask": Example(parameters={"name": "shop.resize"}, answers={200: _TASK}),
    "beginOidcLogin": Example(answers={}, parameters={"next": "/"}),
    "endOidcLogin": Example(answers={}),
    **dict.fromkeys(
        ("logIn", "logInOfDocument"),
        Example(
            body={"username": "ann", "password": "correct horse battery"},
            answers={
                200: {
                    "status": "logged_in",
                    "user": "ann",
                    "token": "m3ZkY2V0...",
                    "csrf_token": "Yk1nZ2V4...",
                    "expires_at": "2027-01-31T05:12:01.250Z",
                }
            },
        ),
    ),
    **dict.fromkeys(("logOut", "logOutOfDocument"), Example(answers={200: {"status": "logged_out"}})),
    **dict.fromkeys(
        ("authorize", "authorizeOfDocument"),
        Example(
            body={"token": "tmq_...", "action": "jobs.read", "resource": "acme"}, answers={200: {"allowed": True}}
        ),
    ),
    "getCaller": Example(
        answers={
            200: {
                "user_id": _ID,
                "user": "ann",
                "via": "session",
                "memberships": [{"tenant": "acme", "role": "operator", "tasks": ["*"]}],
                "scopes": None,
                "permissions": ["jobs.read", "jobs.submit"],
                "csrf_token": None,
            }
        }
    ),
    "getServer": Example(
        answers={
            200: {
                "app": "shop",
                "version": "0.3.0",
                "environment": "production",
                "is_read_only": False,
                "is_development": False,
            }
        }
    ),
    "changePassword": Example(
        body={"before": "correct horse battery", "after": "another long sentence"},
        answers={200: {"status": "updated"}},
    ),
    "listTokens": Example(answers={200: {"items": [_TOKEN]}}),
    "addToken": Example(
        body={"name": "nightly-import", "scopes": ["jobs.submit", "jobs.read"], "tasks": ["billing.*"]},
        answers={201: {**_TOKEN, "secret": "tmq_..."}},
    ),
    "revokeToken": Example(parameters={"token_id": _ID}, answers={200: {"status": "revoked"}}),
    "listUsers": Example(answers={200: {"items": [{**_USER, "memberships": None}], "next": None}}),
    "addUser": Example(
        body={
            "name": "ann",
            "password": "correct horse battery",
            "memberships": [{"tenant": "acme", "role": "operator"}],
        },
        answers={201: _USER},
    ),
    "getUser": Example(parameters={"user_id": _ID}, answers={200: _USER}),
    "changeUser": Example(
        parameters={"user_id": _ID},
        body={"is_disabled": True},
        answers={200: {**_USER, "version": 2, "disabled": "2027-01-30T17:12:01.250Z"}},
    ),
    "eraseUser": Example(parameters={"user_id": _ID}, answers={200: {"status": "erased"}}),
    "setRole": Example(
        parameters={"user_id": _ID, "role_tenant": "acme"},
        body={"role": "submitter", "tasks": ["billing.*"]},
        answers={200: {"status": "updated"}},
    ),
    "removeRole": Example(parameters={"user_id": _ID, "role_tenant": "acme"}, answers={200: {"status": "removed"}}),
    "listTenants": Example(answers={200: {"items": [_TENANT]}}),
    "addTenant": Example(body={"name": "acme", "description": "ACME Ltd"}, answers={201: _TENANT}),
    "changeTenant": Example(parameters={"name": "acme"}, body={"description": "ACME Ltd"}, answers={200: _TENANT}),
    "removeTenant": Example(parameters={"name": "acme"}, answers={200: {"status": "removed"}}),
    "listMembers": Example(
        answers={
            200: {"items": [{"user_id": _ID, "user": "ann", "tenant": "acme", "role": "operator", "tasks": ["*"]}]}
        }
    ),
    "setMember": Example(
        parameters={"user": "ann", "tenant": "acme"},
        body={"role": "submitter", "tasks": ["billing.*"]},
        answers={200: {"status": "updated"}},
    ),
    "removeMember": Example(parameters={"user": "ann", "tenant": "acme"}, answers={200: {"status": "removed"}}),
    "listAuditEntries": Example(
        parameters={"action": "queue."},
        answers={
            200: {
                "items": [
                    {
                        "number": 17,
                        "at": "2027-01-30T17:12:01.250Z",
                        "action": "queue.purge",
                        "kind": "queue",
                        "subject": "images",
                        "tenant": "",
                        "user_id": _ID,
                        "user": "ann",
                        "via": "session",
                        "address": "192.0.2.7",
                        "request_id": "5f1c0f0e2d9a4b7c8e6f1a2b",
                        "before": None,
                        "after": None,
                        "note": "",
                        "position": 17,
                    }
                ],
                "next": None,
            }
        },
    ),
    "actOnJobs": Example(
        body={"action": "retry", "filter": "status:failed created:>-24h", "limit": 200, "note": "the disk is free"},
        answers={
            200: {
                "dry_run": False,
                "matched": 200,
                "done": 199,
                "refused": 1,
                "refusals": [{"job_id": "order-17", "code": "job_conflict", "detail": "job order-17 has ended"}],
                "next": _ID,
            }
        },
    ),
    "followEvents": Example(
        parameters={"event": "dead,retried"},
        answers={
            200: 'id: 5f1c0f0e-17\nevent: job\ndata: {"event":"dead","job_id":"order-17","task":"shop.resize"}\n\n'
        },
        media_type="text/event-stream",
    ),
    "listDefinitions": Example(answers={200: {"items": [_DEFINITION], "next": None}}),
    "getDefinition": Example(parameters={"name": "monthly"}, answers={200: _DEFINITION}),
    "listDefinitionVersions": Example(parameters={"name": "monthly"}, answers={200: {"items": [_DEFINITION]}}),
    "putDefinition": Example(
        parameters={"name": "monthly"},
        body={"task": "data_processing", "kwargs": {"key": "value"}, "priority": "low"},
        answers={200: _DEFINITION},
    ),
    "deleteDefinition": Example(
        parameters={"name": "monthly"}, answers={200: {"status": "deleted", "name": "monthly"}}
    ),
    "createJobOfDocument": Example(
        body={"name": "data_processing", "description": "once a year", "parameters": {"key": "value"}},
        answers={201: {"job_id": _ID, "name": "data_processing", "status": "created"}},
    ),
    "scheduleJobOfDocument": Example(
        body={"job_id": "order-17", "scheduled_time": "2027-01-31T09:00:00Z"},
        answers={200: {"job_id": "order-17", "scheduled_time": "2027-01-31T09:00:00.000Z", "status": "scheduled"}},
    ),
    "getJobStatusOfDocument": Example(parameters=_OF_JOB, answers={200: _JOB}),
}
