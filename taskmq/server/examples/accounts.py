"""Examples for the server, sign-in, users, tenants, the audit log and live events."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_TOKEN: Final[dict[str, Any]] = {
    "user": "ann",
    "id": SOME_ID,
    "name": "nightly-import",
    "scopes": ["jobs.read", "jobs.submit"],
    "tenants": None,
    "tasks": ["billing.*"],
    "created": "2027-01-30T17:12:01.250Z",
    "expires_at": None,
    "last_used": None,
}
_USER: Final[dict[str, Any]] = {
    "id": SOME_ID,
    "name": "ann",
    "email": "",
    "created": "2027-01-30T17:12:01.250Z",
    "version": 1,
    "disabled": None,
    "has_password": True,
    "last_login": None,
    "memberships": [{"tenant": "acme", "role": "operator", "tasks": ["*"], "groups": ["finance"]}],
}
_TENANT: Final[dict[str, Any]] = {
    "name": "acme",
    "description": "ACME Ltd",
    "created": "2027-01-30T17:12:01.250Z",
    "disabled": None,
}

_SESSION: Final[dict[str, Any]] = {
    "id": SOME_ID,
    "created": "2027-01-30T17:12:01.250Z",
    "last_used": "2027-01-30T17:42:01.250Z",
    "ends": "2027-01-30T18:12:01.250Z",
    "address": "192.0.2.7",
    "agent": "Mozilla/5.0",
    "is_own": True,
}

ACCOUNTS: Final[Mapping[str, Example]] = {
    "getLiveness": Example(answers={200: {"status": "live", "store": None}}),
    "getReadiness": Example(answers={200: {"status": "ready", "store": True}}),
    "getHealth": Example(
        answers={
            200: {
                "works": False,
                "parts": [
                    {
                        "part": "broker",
                        "status": "down",
                        "since": "2027-01-30T17:12:01.250Z",
                        "finding": "does not answer",
                        "without": "no job reaches a worker",
                    }
                ],
            }
        }
    ),
    "getSystemHealth": Example(
        answers={
            200: {
                "works": True,
                "parts": [
                    {
                        "part": "store",
                        "status": "works",
                        "since": "2027-01-30T17:12:01.250Z",
                        "finding": "answers",
                        "without": "stored jobs cannot be submitted",
                        "address": "postgresql://shop@db/shop",
                        "seconds": 0.0012,
                        "size": 61_000_000,
                    }
                ],
                "schedulers": [
                    {
                        "name": "web:4711:1c6f2b8e",
                        "host": "web",
                        "pid": 4711,
                        "version": "0.3.0",
                        "app_version": "2027.01.30-1",
                        "started": "2027-01-30T17:12:01.250Z",
                        "partitions": [0],
                    }
                ],
                "versions": [
                    {"kind": "scheduler", "version": "0.3.0", "app_version": "2027.01.30-1", "processes": 1}
                ],
                "partitions": [{"partition": 0, "holder": "web:4711:1c6f2b8e", "late": 0.0, "rate": 12.5}],
                "clocks": [{"kind": "store", "of": "store", "offset": 0.002, "is_wrong": False}],
                "findings": [
                    {
                        "level": "warning",
                        "about": "images",
                        "finding": "3 dead letters",
                        "remedy": "taskmq dlq groups images",
                    }
                ],
            }
        }
    ),
    "getOpenApi": Example(answers={200: {"openapi": "3.1.0"}}),
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
    "verifyAudit": Example(
        parameters={"head": f"1200:{'9f86d081' * 8}"},
        answers={
            200: {
                "is_whole": True,
                "entries": 1234,
                "head": f"1234:{'2c26b46b' * 8}",
                "erased": 2,
                "unsealed": 0,
                "fault": "",
            }
        },
    ),
    "exportAudit": Example(
        answers={
            200: {
                "items": [
                    {
                        "number": 17,
                        "at": 1_801_329_121_250,
                        "action": "queue.purge",
                        "kind": "queue",
                        "subject": "images",
                        "tenant": "",
                        "position": 1,
                        "hash": "2c26b46b" * 8,
                    }
                ],
                "next": None,
            }
        }
    ),
    "followEvents": Example(
        parameters={"event": "dead,retried"},
        answers={
            200: 'id: 5f1c0f0e-17\nevent: job\ndata: {"event":"dead","job_id":"order-17","task":"shop.resize"}\n\n'
        },
        media_type="text/event-stream",
    ),
    "sendEvent": Example(
        parameters={"source": "shop"},
        body={"order": 17, "state": "paid"},
        answers={
            201: {
                "status": "submitted",
                "job_id": "taskmq:event:shop:order-17-paid",
                "id": SOME_ID,
                "state": "queued",
                "version": 1,
                "is_new": True,
                "task": "shop.ship",
                "queue": "default",
            }
        },
    ),
    "beginOidcLogin": Example(answers={}, parameters={"next": "/"}),
    "endOidcLogin": Example(answers={}),
    **dict.fromkeys(
        ("logIn", "logInCompat"),
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
    **dict.fromkeys(("logOut", "logOutCompat"), Example(answers={200: {"status": "logged_out"}})),
    **dict.fromkeys(
        ("authorize", "authorizeCompat"),
        Example(
            body={"token": "tmq_...", "action": "jobs.read", "resource": "acme"}, answers={200: {"allowed": True}}
        ),
    ),
    "getCaller": Example(
        answers={
            200: {
                "user_id": SOME_ID,
                "user": "ann",
                "via": "session",
                "memberships": [{"tenant": "acme", "role": "operator", "tasks": ["*"], "groups": ["finance"]}],
                "scopes": None,
                "permissions": ["jobs.read", "jobs.submit"],
                "csrf_token": None,
            }
        }
    ),
    "changePassword": Example(
        body={"before": "correct horse battery", "after": "another long sentence"},
        answers={200: {"status": "updated", "sessions_ended": 1, "tokens_revoked": 0, "tokens_left": 2}},
    ),
    "listTokens": Example(answers={200: {"items": [_TOKEN]}}),
    "addToken": Example(
        body={"name": "nightly-import", "scopes": ["jobs.submit", "jobs.read"], "tasks": ["billing.*"]},
        answers={201: {**_TOKEN, "secret": "tmq_..."}},
    ),
    "revokeToken": Example(parameters={"token_id": SOME_ID}, answers={200: {"status": "revoked"}}),
    "listSessions": Example(answers={200: {"items": [_SESSION]}}),
    "endSession": Example(parameters={"session_id": SOME_ID}, answers={200: {"status": "ended"}}),
    "listUserSessions": Example(
        parameters={"user_id": SOME_ID}, answers={200: {"items": [{**_SESSION, "is_own": False}]}}
    ),
    "endUserSession": Example(
        parameters={"user_id": SOME_ID, "session_id": SOME_ID}, answers={200: {"status": "ended"}}
    ),
    "listUserTokens": Example(parameters={"user_id": SOME_ID}, answers={200: {"items": [_TOKEN]}}),
    "revokeUserToken": Example(
        parameters={"user_id": SOME_ID, "token_id": SOME_ID}, answers={200: {"status": "revoked"}}
    ),
    "listUsers": Example(answers={200: {"items": [{**_USER, "memberships": None}], "next": None}}),
    "addUser": Example(
        body={
            "name": "ann",
            "password": "correct horse battery",
            "memberships": [{"tenant": "acme", "role": "operator"}],
        },
        answers={201: _USER},
    ),
    "getUser": Example(parameters={"user_id": SOME_ID}, answers={200: _USER}),
    "changeUser": Example(
        parameters={"user_id": SOME_ID},
        body={"is_disabled": True},
        answers={
            200: {
                **_USER,
                "version": 2,
                "disabled": "2027-01-30T17:12:01.250Z",
                "sessions_ended": 0,
                "tokens_revoked": 0,
                "tokens_left": 0,
            }
        },
    ),
    "eraseUser": Example(parameters={"user_id": SOME_ID}, answers={200: {"status": "erased"}}),
    "setRole": Example(
        parameters={"user_id": SOME_ID, "role_tenant": "acme"},
        body={"role": "submitter", "tasks": ["billing.*"]},
        answers={200: {"status": "updated"}},
    ),
    "removeRole": Example(
        parameters={"user_id": SOME_ID, "role_tenant": "acme"}, answers={200: {"status": "removed"}}
    ),
    "listTenants": Example(answers={200: {"items": [_TENANT]}}),
    "addTenant": Example(body={"name": "acme", "description": "ACME Ltd"}, answers={201: _TENANT}),
    "changeTenant": Example(parameters={"name": "acme"}, body={"description": "ACME Ltd"}, answers={200: _TENANT}),
    "removeTenant": Example(parameters={"name": "acme"}, answers={200: {"status": "removed"}}),
    "listMembers": Example(
        answers={
            200: {
                "items": [
                    {
                        "user_id": SOME_ID,
                        "user": "ann",
                        "tenant": "acme",
                        "role": "operator",
                        "tasks": ["*"],
                        "groups": ["finance"],
                    }
                ]
            }
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
                        "user_id": SOME_ID,
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
}
