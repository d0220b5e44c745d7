"""Examples for pools, policies and quotas."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_POOL: Final[dict[str, Any]] = {"pool": "acme", "parent": None, "weight": 5.0, "min": {}, "max": {"slots": 8.0}}
_PAUSED: Final = "queue 'reports' has been paused since 2027-01-30T17:00:00+00:00 by ann (printer)"
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

POOLS: Final[Mapping[str, Example]] = {
    "listPools": Example(
        answers={
            200: {
                "version": 3,
                "items": [_POOL],
                "policies": [{"queue": "reports", "policy": "weighted", "strict": False}],
            }
        }
    ),
    "listBacklogs": Example(
        answers={
            200: {
                "items": [
                    {
                        "tenant": "acme",
                        "jobs": 412,
                        "oldest": "2027-01-30T17:12:01.250Z",
                        "first": SOME_ID,
                        "task": "invoice.render",
                        "queue": "reports",
                        "reasons": [_PAUSED],
                        "alternatives": ["resume queue 'reports' (`taskmq queue resume reports`)"],
                    }
                ]
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
}
