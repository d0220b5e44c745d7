"""Examples for workflows."""

from collections.abc import Mapping
from typing import Final

from taskmq.server.examples.example import SOME_ID, Example

__all__ = ["FLOWS"]

_STEP: Final = {
    "step": "total",
    "task": "shop.total",
    "state": "ready",
    "attempts": None,
    "error": None,
    "part_of": None,
}
_OF_FLOW: Final = {"workflow_id": SOME_ID}

FLOWS: Final[Mapping[str, Example]] = {
    "listFlows": Example(
        parameters={"name": "shop.*", "states": "running,failed"},
        answers={
            200: {
                "items": [
                    {
                        "workflow_id": SOME_ID,
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
    "getFlow": Example(
        parameters=_OF_FLOW,
        answers={
            200: {
                "workflow_id": SOME_ID,
                "tenant": "acme",
                "state": "running",
                "cancelled": None,
                "steps": [
                    {**_STEP, "step": "resize", "task": "shop.resize", "state": "succeeded", "after": []},
                    {**_STEP, "after": ["resize"]},
                ],
            }
        },
    ),
    "cancelFlow": Example(
        parameters=_OF_FLOW,
        body={"reason": "ordered twice"},
        answers={200: {"status": "cancelled", "workflow_id": SOME_ID}},
    ),
    "closeFlow": Example(parameters=_OF_FLOW, answers={200: {"status": "closed", "workflow_id": SOME_ID}}),
    "redriveFlow": Example(parameters=_OF_FLOW, answers={200: {"steps": 3, "letters": 1}}),
}
