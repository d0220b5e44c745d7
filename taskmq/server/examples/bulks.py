"""Examples for bulk operations."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.server.examples.example import SOME_ID, Example

_OF_BULK: Final = {"bulk_id": SOME_ID}
_BULK: Final[dict[str, Any]] = {
    "bulk_id": SOME_ID,
    "tenant": "acme",
    "action": "retry",
    "filter": "status:failed created:>-24h",
    "schedule_time": None,
    "priority": None,
    "rate": 50.0,
    "note": "the disk is free",
    "by": "ann",
    "state": "running",
    "matched": 1250,
    "done": 400,
    "reattached": 0,
    "refused": 1,
    "refusals": [{"job_id": "order-17", "code": "job_conflict", "detail": "job order-17 has ended"}],
    "repeated": [{"job_id": "order-18", "retried_as": SOME_ID}],
    "began": "2027-01-30T17:12:01.250Z",
    "ended": None,
}

BULKS: Final[Mapping[str, Example]] = {
    "actOnJobs": Example(
        body={"action": "retry", "filter": "status:failed created:>-24h", "limit": 200, "note": "the disk is free"},
        answers={
            200: {
                "dry_run": False,
                "matched": 200,
                "done": 199,
                "refused": 1,
                "refusals": [{"job_id": "order-17", "code": "job_conflict", "detail": "job order-17 has ended"}],
                "next": SOME_ID,
            }
        },
    ),
    "beginBulk": Example(
        body={"action": "retry", "filter": "status:failed created:>-24h", "rate": 50.0, "note": "the disk is free"},
        answers={202: _BULK},
    ),
    "listBulks": Example(answers={200: {"items": [_BULK], "next": None}}),
    "getBulk": Example(parameters=_OF_BULK, answers={200: _BULK}),
    "abortBulk": Example(
        parameters=_OF_BULK, answers={200: {**_BULK, "state": "aborted", "ended": "2027-01-30T17:12:09.500Z"}}
    ),
}
