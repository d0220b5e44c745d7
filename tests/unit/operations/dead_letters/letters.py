"""Dead letters for tests."""

from typing import Any

from taskmq.operations.dead_letters import DeadLetter

NOW = 1_700_000_000_000


def letter(**fields: Any) -> DeadLetter:
    known: dict[str, Any] = {
        "job_id": "job",
        "task": "shop.resize",
        "tenant": "acme",
        "queue": "images",
        "attempt": 3,
        "reason": "error",
        "error": "shop.errors.TooDark: no light",
        "error_type": "shop.errors.TooDark",
        "traceback": "",
        "enqueued": None,
        "started": None,
        "died": NOW,
        "worker": "host:1",
        "starts": None,
        "priority": None,
        "replayed": 0,
        "root": None,
        "is_stored": False,
        "headers": {},
        "body": b"{}",
        "content_type": "application/json",
    }
    return DeadLetter(**{**known, **fields})
